/* SPDX-License-Identifier: MIT */
/*
 * dlsym: a program that asks the C library itself for a function that libtthread stands in front of gets libtthread's, as
 * one does that is linked with it. Free Pascal's threads look up all of pthread so, and who calls through ctypes.
 *
 * For RTLD_NEXT and RTLD_DEFAULT who calls decides what is found: there nothing but a jump is added.
 */
#define _GNU_SOURCE
#include "next.h"

#include <dlfcn.h>

typedef void *lookup(void *, const char *);

static lookup *next;

PTW_HIDDEN void *ptw_lookup_in(void *handle, const char *name);
PTW_HIDDEN lookup *ptw_lookup_next(void);

__asm__(".pushsection .text.dlsym,\"ax\",@progbits\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	"dlsym:\n"
	".cfi_startproc\n"
	"	leaq 1(%rdi), %rax\n" /* RTLD_NEXT is -1, RTLD_DEFAULT 0 */
	"	cmpq $1, %rax\n"
	"	ja ptw_lookup_in\n"
	"	pushq %rdi\n"
	".cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	".cfi_adjust_cfa_offset 8\n"
	"	subq $8, %rsp\n"
	".cfi_adjust_cfa_offset 8\n"
	"	call ptw_lookup_next\n"
	"	addq $8, %rsp\n"
	".cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	".cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	".cfi_adjust_cfa_offset -8\n"
	"	jmp *%rax\n"
	".cfi_endproc\n"
	".size dlsym, .-dlsym\n"
	".popsection\n");

lookup *ptw_lookup_next(void)
{
	lookup *found = __atomic_load_n(&next, __ATOMIC_RELAXED);
	if (__builtin_expect(!found, 0)) {
		*(void **)&found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"); /* newer ones have it, too */
		__atomic_store_n(&next, found, __ATOMIC_RELAXED);
	}
	return found;
}

/* What this library has by a name. */
static void *ours(const char *name)
{
	extern const ElfW(Ehdr) __ehdr_start PTW_HIDDEN;
	const struct link_map own = {.l_addr = (uintptr_t)&__ehdr_start, .l_ld = _DYNAMIC};
	return ptw_next_in(&own, name, ptw_next_hash(name), NULL);
}

void *ptw_lookup_in(void *handle, const char *name)
{
	void *there = ptw_lookup_next()(handle, name), *here = there && name ? ours(name) : NULL;
	/* another library that stands in front of it calls what is behind it, not us */
	return here && ptw_lookup_next()(RTLD_NEXT, name) == there ? here : there;
}
