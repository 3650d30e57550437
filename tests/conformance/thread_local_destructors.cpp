/* SPDX-License-Identifier: MIT */
/* Destructors of thread_local objects run at the end of their thread, before those of keys, and before join
 * returns; main's at exit. */
#include "promise.h"

#include <string>
#include <thread>

static std::string order;
static pthread_key_t key;

struct Noisy {
	char letter;
	explicit Noisy(char letter) : letter(letter) {}
	~Noisy() { order += letter; }
};

static thread_local Noisy first('a'), second('b');

int main()
{
	pthread_key_create(&key, [](void *) { order += 'k'; });
	std::thread([] {
		pthread_setspecific(key, &key);
		PROMISE(first.letter == 'a' && second.letter == 'b');
	}).join();
	PROMISE(order == "bak");
	std::thread([] {}).join();
	PROMISE(order == "bak");
	return 0;
}
