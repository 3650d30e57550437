/* SPDX-License-Identifier: MIT */
/* Exceptions are thrown and caught within threads at the same time, and carried from one to another. */
#include "promise.h"

#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static int depth(int n)
{
	if (n == 0)
		throw std::runtime_error("at the bottom");
	return depth(n - 1) + 1;
}

int main()
{
	std::vector<std::thread> threads;
	std::vector<int> caught(8);
	for (int i = 0; i < 8; i++)
		threads.emplace_back([&caught, i] {
			for (int round = 0; round < 100; round++)
				try {
					depth(10 + i);
				} catch (const std::exception &) {
					caught[i]++;
				}
		});
	for (auto &thread : threads)
		thread.join();
	for (int count : caught)
		PROMISE(count == 100);
	auto future = std::async(std::launch::async, [] { return depth(3); });
	try {
		future.get();
		PROMISE(false);
	} catch (const std::runtime_error &error) {
		PROMISE(std::string(error.what()) == "at the bottom");
	}
	return 0;
}
