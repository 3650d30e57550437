/* SPDX-License-Identifier: MIT */
/* What a function given to std::call_once wrote before an exception left it is seen by the one that is run next, though
 * nothing else orders the two and both threads write to that page. */
#include "promise.h"

#include <atomic>
#include <ctime>
#include <mutex>
#include <semaphore.h>
#include <thread>

enum { AWAY = 4096 / sizeof(int) };

static std::once_flag flag;
static sem_t begun;
alignas(4096) static int written[2 * AWAY];
static volatile unsigned long spins;
static int seen[2] = {-1, -1};

/* No call that another thread could notice. */
static void spin()
{
	for (unsigned long i = 0; i < 20000000; i++)
		spins = i;
}

/* Writes when it is left. */
struct Last {
	~Last() { written[AWAY + 1] = 8; }
};

int main()
{
	sem_init(&begun, 0, 0);
	std::thread next([] {
		sem_wait(&begun);
		written[AWAY + 2] = 9;
		std::call_once(flag, [] {
			seen[0] = written[AWAY];
			seen[1] = written[AWAY + 1];
		});
	});
	try {
		std::call_once(flag, [] {
			Last last;
			sem_post(&begun);
			spin(); /* the other one waits for this one by now, most probably */
			written[AWAY] = 7;
			throw 1;
		});
	} catch (int) {
	}
	spin();
	next.join();
	PROMISE(seen[0] == 7 && seen[1] == 8 && written[AWAY + 2] == 9);
	return 0;
}
