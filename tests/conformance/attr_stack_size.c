/* SPDX-License-Identifier: MIT */
/* A thread has the stack its attribute asks for: 16 MiB can be used, and the size is told as asked. */
#include "promise.h"

enum { SIZE = 16 << 20, USED = 15 << 20 };

static void *use(void *unused)
{
	pthread_attr_t attributes;
	size_t size;
	char *local = __builtin_alloca(USED);
	for (long i = USED - 1; i >= 0; i -= 1024)
		local[i] = (char)i;
	PROMISE(pthread_getattr_np(pthread_self(), &attributes) == 0);
	PROMISE(pthread_attr_getstacksize(&attributes, &size) == 0 && size >= SIZE - 64 * 1024);
	pthread_attr_destroy(&attributes);
	return unused;
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	pthread_attr_init(&attributes);
	PROMISE(pthread_attr_setstacksize(&attributes, 1000) == EINVAL);
	PROMISE(pthread_attr_setstacksize(&attributes, SIZE) == 0);
	PROMISE(pthread_create(&thread, &attributes, use, NULL) == 0);
	join(thread);
	return 0;
}
