// SPDX-License-Identifier: MIT
/*
 * Three threads use a static variable that the first of them to come initialises while the others wait. A fourth, which
 * has written beside another one, sees by the byte of its guard alone that it is initialised, and uses it at once. Pages
 * are so far apart that none is opened ahead with another; their addresses are printed first. Ends with 4 if a use found
 * what was not initialised.
 */
#include <atomic>
#include <cstdio>
#include <pthread.h>
#include <unistd.h>

namespace {

constexpr int page = 4096, apart = 16 * page, threads = 3;

struct alignas(page) Slow {
	unsigned char bytes[apart];

	Slow()
	{
		usleep(100000); // the others wait for it, on a busy machine, too
		bytes[0] = 1;
	}
};

struct alignas(page) Shared {
	unsigned char beside; // written by who passes the guard later
	unsigned char bytes[apart - 1];
};

Shared shared;
pthread_barrier_t begun;
bool right[threads + 1];

struct Setter {
	Setter() { shared.bytes[100] = 2; }
};

Slow &slow()
{
	static Slow made;
	return made;
}

} // namespace

// The name is known, to look at its guard.
extern "C++" inline Setter &setter()
{
	static Setter made;
	return made;
}

extern volatile unsigned char guard_of_setter __asm__("_ZGVZ6settervE4made");

static void *use(void *argument)
{
	const long k = reinterpret_cast<long>(argument);

	pthread_barrier_wait(&begun);
	if (k == threads) {
		shared.beside = 1;
		while (!guard_of_setter)
			;
		setter();
		right[k] = shared.bytes[100] == 2;
		return nullptr;
	}
	right[k] = slow().bytes[0] == 1;
	if (!k)
		setter();
	return nullptr;
}

int main()
{
	pthread_t made[threads + 1];
	bool all = true;

	pthread_barrier_init(&begun, nullptr, threads + 1);
	for (long k = 0; k <= threads; k++)
		if (pthread_create(&made[k], nullptr, use, reinterpret_cast<void *>(k)))
			return 3;
	for (pthread_t thread : made)
		pthread_join(thread, nullptr);
	std::printf("page 0 %p\npage 1 %p\n", static_cast<void *>(&slow()), static_cast<void *>(&shared));
	for (bool one : right)
		all = all && one;
	return all ? 0 : 4;
}
