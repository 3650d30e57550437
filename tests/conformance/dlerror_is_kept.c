/* SPDX-License-Identifier: MIT */
/* dlerror tells why dlopen failed, once, and also where that is the first thing that a program or a thread does. */
#include "promise.h"

#include <dlfcn.h>

#define MISSING "missing/library.so"

static void *fail(void *unused)
{
	PROMISE(dlopen(MISSING, RTLD_NOW) == NULL);
	const char *error = dlerror();
	PROMISE(error && strstr(error, MISSING) && dlerror() == NULL);
	PROMISE(dlsym(RTLD_DEFAULT, "missing_function") == NULL && dlerror() && dlerror() == NULL);
	return unused;
}

int main(void)
{
	fail(NULL);
	in_thread(fail, NULL);
	PROMISE(dlopen("libutil.so.1", RTLD_NOW) != NULL && dlerror() == NULL);
	fail(NULL);
	in_thread(fail, NULL);
	return 0;
}
