/* SPDX-License-Identifier: MIT */
/* pthread_getattr_np tells where the stack lies, of a thread and of main, and that locals lie in it. */
#include "promise.h"

static void *look(void *unused)
{
	pthread_attr_t attributes;
	void *address;
	size_t size, guard;
	volatile char local = 0;
	PROMISE(pthread_getattr_np(pthread_self(), &attributes) == 0);
	PROMISE(pthread_attr_getstack(&attributes, &address, &size) == 0);
	PROMISE((char *)&local >= (char *)address && (char *)&local < (char *)address + size);
	PROMISE(pthread_attr_getguardsize(&attributes, &guard) == 0);
	pthread_attr_destroy(&attributes);
	return unused;
}

int main(void)
{
	look(NULL);
	in_thread(look, NULL);
	return 0;
}
