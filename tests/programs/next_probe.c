/* SPDX-License-Identifier: MIT */
/*
 * Names from standard input, one a line; for each: NAME quick|asked same|different. Quick: dlsym was not asked. Same:
 * dlsym says the same. Arguments: `audit`: as if there were an auditor; `blind`: the other objects are left out, which
 * is wrong where one of them defines a name; `hashes`: no names, but hashes that are constants: TEXT CONSTANT COMPUTED.
 */
#define _GNU_SOURCE
#include "next.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);

static unsigned asked;

void *__wrap_dlsym(void *handle, const char *name)
{
	asked++;
	return __real_dlsym(handle, name);
}

static uint32_t hash_of(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

static const struct {
	const char *text;
	uint32_t hash;
} constants[] = {
#define CONSTANT(text) { text, PTW_NEXT_HASH(text) },
	CONSTANT("") CONSTANT("a") CONSTANT("read") CONSTANT("pthread_rwlock_timedrdlock") CONSTANT("\xc3\xa9t\xc3\xa9")
	CONSTANT("of_one_and_thirty_characters__x") CONSTANT("of_two_and_thirty_characters__xy")
};

static int hashes(void)
{
	for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
		printf("%s %u %u\n", constants[i].text, constants[i].hash, hash_of(constants[i].text));
	return 0;
}

int main(int argc, char **argv)
{
	static struct ptw_next next;
	char name[1024];

	if (argc > 1 && !strcmp(argv[1], "hashes"))
		return hashes();
	if (argc > 1 && !strcmp(argv[1], "audit"))
		setenv("LD_AUDIT", "somebody", 1);
	ptw_next_init(&next);
	if (argc > 1 && !strcmp(argv[1], "blind"))
		next.other_count = 0;
	while (fgets(name, sizeof name, stdin)) {
		name[strcspn(name, "\n")] = 0;
		asked = 0;
		void *found = ptw_next_find(&next, name, hash_of(name));
		printf("%s %s %s\n", name, asked ? "asked" : "quick",
		       found == __real_dlsym(RTLD_NEXT, name) ? "same" : "different");
	}
	return 0;
}
