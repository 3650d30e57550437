/* SPDX-License-Identifier: MIT */
/* What a thread loaded stays when it has ended: a library with its functions, globals and thread-locals, a locale, a
 * conversion, translations of time. Libraries of two threads do not come to lie at one place. */
#include "promise.h"

#include <dlfcn.h>
#include <iconv.h>
#include <langinfo.h>
#include <locale.h>

static int *(*local)(void);
static int *global;
static double (*cosine)(double);
static iconv_t conversion;
static void *library;

static void *load(void *path)
{
	library = dlopen(path, RTLD_NOW);
	PROMISE(library && dlopen("libm.so.6", RTLD_NOW));
	local = (int *(*)(void))dlsym(library, "counter");
	global = dlsym(library, "global");
	PROMISE(local && global && *local() == 7 && *global == 70);
	*local() = 8, *global = 71;
	return NULL;
}

static void *load_other(void *unused)
{
	void *math = dlopen("libm.so.6", RTLD_NOW), *other = dlopen("libresolv.so.2", RTLD_NOW);
	PROMISE(math && other && dlsym(other, "ns_get16"));
	cosine = (double (*)(double))dlsym(math, "cos");
	PROMISE(cosine(0) == 1 && *local() == 7 && *global == 71);
	return unused;
}

static void *set_locale(void *unused)
{
	PROMISE(setlocale(LC_ALL, "C.UTF-8") != NULL && strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
	conversion = iconv_open("UTF-16LE", "ISO-8859-15");
	PROMISE(conversion != (iconv_t)-1);
	return unused;
}

static void *use(void *unused)
{
	char in[] = "\xa4", out[8], *from = in, *to = out;
	size_t left = 1, room = sizeof out;
	PROMISE(iconv(conversion, &from, &left, &to, &room) == 0 && room == 6 && memcmp(out, "\xac\x20", 2) == 0);
	PROMISE(strcmp(nl_langinfo(CODESET), "UTF-8") == 0 && mblen("\xc3\xa4", 2) == 2);
	PROMISE(*local() == 7 && *global == 71 && cosine(0) == 1);
	return unused;
}

int main(int argc, char **argv)
{
	char path[4096];
	PROMISE(argc == 1);
	snprintf(path, sizeof path, "%s.library.so", argv[0]);
	in_thread(load, path);
	in_thread(load_other, NULL);
	in_thread(set_locale, NULL);
	in_thread(use, NULL);
	use(NULL);
	PROMISE(iconv_close(conversion) == 0 && dlclose(library) == 0);
	return 0;
}
