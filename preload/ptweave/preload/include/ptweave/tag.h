/* SPDX-License-Identifier: MIT */
/*
 * ptweave_tag("text"): a moment of the program's own, with its call stack, in the table `tags` of a recording.
 *
 *	#include <ptweave/tag.h>
 *	ptweave_tag("request begins");
 *	ptweave_tag_with("request begins", "path", path);
 *
 * C and C++, x86-64 Linux. Nothing is linked: where the program is not recorded (or is static) a tag costs a load and a
 * branch. May be used in any thread and in signal handlers. Text and value together may have about 127 KiB; what is
 * longer is cut, and the row says so.
 */
#ifndef PTWEAVE_TAG_H
#define PTWEAVE_TAG_H

#ifdef __cplusplus
extern "C" {
#endif

typedef void ptweave_tag_function(const char *text, unsigned long length, unsigned count, const char *const *keys,
				  const char *const *values);

/* libtthread's end, if it is there. Through the global offset table, so that executables at fixed addresses ask the
 * loader, too: a weak symbol is otherwise settled when they are linked. */
static inline __attribute__((always_inline, unused)) ptweave_tag_function *ptweave_tag_end(void)
{
	ptweave_tag_function *end = 0;
#if defined(__x86_64__) && defined(__ELF__) && !defined(__ILP32__)
	__asm__(".weak ptweave_tag_record\n\tmovq ptweave_tag_record@GOTPCREL(%%rip), %0" : "=r"(end));
#endif
	return end;
}

static inline __attribute__((always_inline, unused)) void ptweave_tag(const char *text)
{
	ptweave_tag_function *end = ptweave_tag_end();
	if (__builtin_expect(end != 0, 0))
		end(text, __builtin_strlen(text), 0, 0, 0);
}

/* With a key and its value. */
static inline __attribute__((always_inline, unused)) void ptweave_tag_with(const char *text, const char *key,
									   const char *value)
{
	ptweave_tag_function *end = ptweave_tag_end();
	if (__builtin_expect(end != 0, 0))
		end(text, __builtin_strlen(text), 1, &key, &value);
}

#ifdef __cplusplus
}
#endif

#endif
