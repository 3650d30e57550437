/* SPDX-License-Identifier: MIT */
/* pthread_setattr_default_np changes what threads created without attributes get. */
#include "promise.h"

static void *look(void *expected)
{
	pthread_attr_t attributes;
	size_t size;
	PROMISE(pthread_getattr_np(pthread_self(), &attributes) == 0);
	PROMISE(pthread_attr_getstacksize(&attributes, &size) == 0);
	PROMISE(size >= (size_t)expected - 64 * 1024 && size <= (size_t)expected + 64 * 1024);
	return NULL;
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	PROMISE(pthread_attr_setstacksize(&attributes, 3 << 20) == 0);
	PROMISE(pthread_setattr_default_np(&attributes) == 0);
	in_thread(look, (void *)(3 << 20));
	return 0;
}
