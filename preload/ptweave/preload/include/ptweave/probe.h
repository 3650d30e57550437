/* SPDX-License-Identifier: MIT */
/*
 * Handlers of probes, in C: `ptweave record --handler FILE.c:function --probe SPEC` compiles the file with the system's
 * compiler and calls the function at each hit. A row of the table `probes` is made of each call, with what it adds.
 *
 *	#include <ptweave/probe.h>
 *	void on_open(struct ptweave_hit *hit)
 *	{
 *		ptweave_add_string(hit, "path", (const char *)ptweave_arg(hit, 0));
 *		ptweave_add_i64(hit, "flags", (long)ptweave_arg(hit, 1));
 *	}
 *
 * It runs in the thread that came by, on its stack, wherever the probe is: also in signal handlers, and while the
 * program holds locks, such as malloc's. So it should do what a signal handler may, and return. Registers are the
 * program's, to be read; a probe that the handler itself runs into is not hit. When the handler crashes (SIGSEGV,
 * SIGBUS, SIGFPE, SIGILL) its probe is switched off, and the program goes on. Keys are kept up to 55 bytes apart from
 * the rows; a row has at most 128 KiB, what is longer is cut.
 */
#ifndef PTWEAVE_PROBE_H
#define PTWEAVE_PROBE_H

#ifdef __cplusplus
extern "C" {
#endif

/* When the instruction at rip was about to be executed. */
struct ptweave_registers {
	unsigned long rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags;
};

struct ptweave_hit;

struct ptweave_probe_calls {
	void (*add)(struct ptweave_hit *hit, const char *key, int type, unsigned long number, const void *data);
	void (*stack)(struct ptweave_hit *hit);
	void (*skip)(struct ptweave_hit *hit);
};

struct ptweave_hit {
	const struct ptweave_registers *registers;
	const struct ptweave_probe_calls *calls;
};

/* The n-th argument (0 to 5; integers and pointers) where a function begins. */
static inline unsigned long ptweave_arg(const struct ptweave_hit *hit, unsigned n)
{
	const struct ptweave_registers *r = hit->registers;
	switch (n) {
	case 0:
		return r->rdi;
	case 1:
		return r->rsi;
	case 2:
		return r->rdx;
	case 3:
		return r->rcx;
	case 4:
		return r->r8;
	case 5:
		return r->r9;
	default:
		return ((const unsigned long *)r->rsp)[n - 5];
	}
}

static inline void ptweave_add_i64(struct ptweave_hit *hit, const char *key, long value)
{
	hit->calls->add(hit, key, 1, (unsigned long)value, 0);
}

static inline void ptweave_add_u64(struct ptweave_hit *hit, const char *key, unsigned long value)
{
	hit->calls->add(hit, key, 2, value, 0);
}

static inline void ptweave_add_f64(struct ptweave_hit *hit, const char *key, double value)
{
	unsigned long bits;
	__builtin_memcpy(&bits, &value, sizeof bits);
	hit->calls->add(hit, key, 3, bits, 0);
}

/* Up to its NUL. A null pointer adds nothing. */
static inline void ptweave_add_string(struct ptweave_hit *hit, const char *key, const char *text)
{
	if (text)
		hit->calls->add(hit, key, 4, __builtin_strlen(text), text);
}

static inline void ptweave_add_bytes(struct ptweave_hit *hit, const char *key, const void *data, unsigned long size)
{
	hit->calls->add(hit, key, 5, size, data);
}

/* The call stack goes into the row. */
static inline void ptweave_add_stack(struct ptweave_hit *hit) { hit->calls->stack(hit); }

/* No row is made of this hit. (It is counted as given up.) */
static inline void ptweave_skip(struct ptweave_hit *hit) { hit->calls->skip(hit); }

#ifdef __cplusplus
}
#endif

#endif
