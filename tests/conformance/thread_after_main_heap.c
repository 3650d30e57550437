/* SPDX-License-Identifier: MIT */
/* Memory that main used before its first thread (heap, globals, main's stack, libraries' data) is what threads
 * see. */
#include "promise.h"

#include <search.h>

static char *early_heap, *early_large;
static int early_global = 1;

__attribute__((constructor)) static void before_main(void)
{
	early_heap = strdup("from a constructor");
	early_large = malloc(1 << 20);
	memset(early_large, 0x42, 1 << 20);
	early_global = 2;
	srandom(9);
}

static void *look(void *local)
{
	PROMISE(strcmp(early_heap, "from a constructor") == 0 && early_large[(1 << 20) - 1] == 0x42);
	PROMISE(early_global == 2 && strcmp(local, "on main's stack") == 0);
	early_heap = realloc(early_heap, 4000);
	PROMISE(strcmp(early_heap, "from a constructor") == 0);
	free(early_large);
	strcpy(local, "changed");
	return NULL;
}

int main(void)
{
	char local[32] = "on main's stack";
	in_thread(look, local);
	PROMISE(strcmp(local, "changed") == 0);
	free(early_heap);
	return 0;
}
