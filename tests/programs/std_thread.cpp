// SPDX-License-Identifier: MIT
// std::thread, mutexes, a condition variable, thread_local destructors and an exception, in C++.
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static std::mutex mutex;
static std::shared_mutex shared;
static std::condition_variable condition;
static int turn, destroyed;

struct Local {
	~Local()
	{
		std::lock_guard<std::mutex> lock(mutex);
		destroyed++;
	}
	int value = 0;
};
static thread_local Local local;

static void work(int me)
{
	for (int i = 0; i < 25; i++) {
		std::unique_lock<std::mutex> lock(mutex);
		condition.wait(lock, [me] { return turn % 4 == me; });
		turn++;
		local.value++;
		condition.notify_all();
		lock.unlock();
		std::shared_lock<std::shared_mutex> read(shared);
	}
	try {
		std::unique_lock<std::shared_mutex> write(shared);
		throw std::runtime_error("thrown with a lock held");
	} catch (const std::exception &error) {
		std::lock_guard<std::mutex> lock(mutex);
		turn += 0;
	}
}

int main()
{
	std::vector<std::thread> threads;
	for (int i = 0; i < 4; i++)
		threads.emplace_back(work, i);
	for (auto &thread : threads)
		thread.join();
	std::cout << "turn " << turn << " destroyed " << destroyed << std::endl;
}
