/* SPDX-License-Identifier: MIT */
/* std::thread, mutexes, condition variables, futures and shared_mutex work together. */
#include "promise.h"

#include <condition_variable>
#include <future>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

int main()
{
	std::mutex mutex;
	std::shared_mutex shared;
	std::condition_variable ready;
	std::vector<std::string> words;
	bool open = false;
	std::vector<std::thread> threads;
	for (int i = 0; i < 6; i++)
		threads.emplace_back([&, i] {
			std::unique_lock<std::mutex> lock(mutex);
			ready.wait(lock, [&] { return open; });
			words.push_back("a word that is too long to be kept inline " + std::to_string(i));
			std::shared_lock<std::shared_mutex> reading(shared);
		});
	{
		std::unique_lock<std::shared_mutex> writing(shared);
		std::lock_guard<std::mutex> lock(mutex);
		open = true;
		ready.notify_all();
	}
	for (auto &thread : threads)
		thread.join();
	PROMISE(words.size() == 6);
	std::promise<std::vector<int>> promise;
	auto future = promise.get_future();
	std::thread sender([&] {
		std::vector<int> numbers(10000);
		std::iota(numbers.begin(), numbers.end(), 0);
		promise.set_value(std::move(numbers));
	});
	auto numbers = future.get();
	sender.join();
	PROMISE(std::accumulate(numbers.begin(), numbers.end(), 0) == 49995000);
	PROMISE(std::async(std::launch::async, [] { return 5; }).get() == 5);
	return 0;
}
