/* SPDX-License-Identifier: MIT */
/* Libraries are opened, searched and closed by several threads; a symbol found by one is called by all; dlerror
 * is a thread's own. */
#include "promise.h"

#include <dlfcn.h>

static double (*cosine)(double);
static struct gate gate = GATE;

static void *call(void *unused)
{
	gate_wait(&gate, 1);
	PROMISE(cosine(0) == 1);
	return unused;
}

static void *churn(void *unused)
{
	for (int i = 0; i < 20; i++) {
		void *library = dlopen("libm.so.6", RTLD_NOW);
		PROMISE(library && dlsym(library, "sin"));
		PROMISE(dlsym(library, "no_such_symbol") == NULL && dlerror() != NULL && dlerror() == NULL);
		PROMISE(dlclose(library) == 0);
	}
	return unused;
}

int main(void)
{
	pthread_t early = start(call, NULL), one = start(churn, NULL), two = start(churn, NULL);
	void *library = dlopen("libm.so.6", RTLD_NOW);
	PROMISE(library);
	cosine = (double (*)(double))dlsym(library, "cos");
	gate_open(&gate, 1);
	join(early);
	join(one);
	join(two);
	PROMISE(dlerror() == NULL);
	return 0;
}
