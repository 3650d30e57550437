/* SPDX-License-Identifier: MIT */
/* An exception that leaves a thread's routine ends the program by abort.
 *
 * Ends: SIGABRT */
#include "promise.h"

#include <cstdlib>
#include <exception>
#include <thread>

int main()
{
	std::set_terminate([] { std::abort(); });
	std::thread([] { throw 5; }).join();
	return 0;
}
