/* SPDX-License-Identifier: MIT */
/* What main was given (arguments, environment, auxiliary vector) can be read by every thread. */
#include "promise.h"

#include <sys/auxv.h>

static char **arguments;

static void *look(void *unused)
{
	PROMISE(strlen(arguments[0]) > 0 && arguments[1] == NULL);
	PROMISE(getenv("PATH") != NULL && strlen(getenv("PATH")) > 0);
	PROMISE(getauxval(AT_PAGESZ) == PAGE && getauxval(AT_RANDOM) != 0);
	unsigned char sum = 0;
	for (int i = 0; i < 16; i++)
		sum = (unsigned char)(sum | ((unsigned char *)getauxval(AT_RANDOM))[i]);
	PROMISE(sum != 0 && strlen((char *)getauxval(AT_EXECFN)) > 0 && program_invocation_name == arguments[0]);
	arguments[0][0] = '!';
	return unused;
}

int main(int argc, char **argv)
{
	PROMISE(argc == 1);
	arguments = argv;
	in_thread(look, NULL);
	PROMISE(argv[0][0] == '!');
	return 0;
}
