/* SPDX-License-Identifier: MIT */
/* When the function given to std::call_once throws, the caller sees the exception and the next caller runs it
 * again. */
#include "promise.h"

#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static std::once_flag flag;
static int runs, caught;
static std::mutex mutex;

static void initialise()
{
	if (++runs < 3)
		throw std::runtime_error("not yet");
}

int main()
{
	std::vector<std::thread> threads;
	for (int i = 0; i < 6; i++)
		threads.emplace_back([] {
			try {
				std::call_once(flag, initialise);
			} catch (const std::runtime_error &) {
				std::lock_guard<std::mutex> guard(mutex);
				caught++;
			}
		});
	for (auto &thread : threads)
		thread.join();
	PROMISE(runs == 3 && caught == 2);
	return 0;
}
