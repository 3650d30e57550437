/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the BPF programs and the consumer share: the records in the ring and the counters beside it.
 *
 * A record begins with `struct ptw_record`; its kind says what follows. A new kind of event is a new kind of record
 * with the same head. Sizes are those of the ring's own header. All of it is private to one build: both sides are
 * compiled from this file, nothing of it is stored.
 */
#ifndef PTW_RECORD_H
#define PTW_RECORD_H

#ifdef __bpf__
typedef unsigned char ptw_u8;
typedef unsigned short ptw_u16;
typedef unsigned int ptw_u32;
typedef unsigned long long ptw_u64;
typedef long long ptw_s64;
#else
#include <stdint.h>
typedef uint8_t ptw_u8;
typedef uint16_t ptw_u16;
typedef uint32_t ptw_u32;
typedef uint64_t ptw_u64;
typedef int64_t ptw_s64;
#endif

enum ptw_limit {
	PTW_NUMBERS = 512,	/* call numbers with a counter and a path mask of their own; others share a counter */
	PTW_PATHS = 2,		/* path arguments of one call */
	PTW_PATH_SIZE = 4096,	/* bytes kept of a path: all of it when it fits PATH_MAX, NUL not counted */
	PTW_PATH_SLOT = 4104,	/* room for one path, its NUL (and what the reader's terminator needs) included */
	PTW_CPUS = 1024,	/* processors with a counter of their own; others share */
};

enum ptw_record_kind {
	PTW_RECORD_SYSCALL = 1,
	PTW_RECORD_KINDS = 2,
};

/* How a call ended, and what is known of it. */
enum ptw_syscall_flag {
	PTW_SYSCALL_NO_EXIT = 1,	/* it never returned: exit, or its task died inside it */
	PTW_SYSCALL_NO_ENTER = 2,	/* refused before it began (seccomp, a tracer): t_enter is t_exit */
};

enum ptw_path_state {
	PTW_PATH_NONE = 0,		/* the call has no such path argument */
	PTW_PATH_READ = 1,
	PTW_PATH_UNREADABLE = 2,	/* NULL, or not readable at enter nor at exit */
	PTW_PATH_TRUNCATED = 3,		/* the first PTW_PATH_SIZE bytes of one that is longer than the kernel takes */
};

struct ptw_record {
	ptw_u16 kind;			/* enum ptw_record_kind */
	ptw_u16 flags;
	ptw_u32 number;			/* as the kernel got it */
	ptw_u32 pid;			/* in the recorder's pid namespace, as of the time of the call */
	ptw_u32 tid;
};

struct ptw_path {
	ptw_u16 state;			/* enum ptw_path_state */
	ptw_u16 offset;			/* of its first byte behind the record */
	ptw_u16 size;			/* bytes, NUL not counted */
	ptw_u16 argument;		/* which argument it is */
};

struct ptw_syscall {
	struct ptw_record head;
	ptw_u64 t_enter;		/* CLOCK_MONOTONIC, ns */
	ptw_u64 t_exit;
	ptw_u64 ip;			/* user-space address after the system-call instruction */
	ptw_u64 args[6];
	ptw_s64 result;
	struct ptw_path path[PTW_PATHS];
	/* the paths' bytes follow */
};

/* What a followed task carries along: the call it is in. User space writes one to begin a tree. */
struct ptw_task {
	ptw_u32 active;			/* it is inside `call` */
	ptw_u32 newborn;		/* its next exit may be of a call whose enter was not seen */
	ptw_u32 retry;			/* paths to read again at exit, a bit each */
	ptw_u32 has_text;		/* what is in its text storage is this call's */
	struct ptw_syscall call;
};

/* Counters of one processor: programs add, the consumer reads them when the programs are gone. */
struct ptw_cpu_counts {
	ptw_u64 entered;		/* calls of followed tasks that began */
	ptw_u64 submitted;		/* records that are in the ring */
	ptw_u64 pad[6];			/* a cache line each */
};

/* Losses. Each call counted in `entered` is in `submitted`, in one of these, or still inside the kernel. */
struct ptw_losses {
	ptw_u64 ring_full[PTW_NUMBERS + 1];	/* by call number; the last one for all others */
	ptw_u64 no_memory[PTW_NUMBERS + 1];	/* the kernel had none to remember the call in */
	ptw_u64 no_exit[PTW_NUMBERS + 1];	/* its exit was never seen, though its task went on */
	ptw_u64 compat;				/* 32-bit calls: their numbers mean something else */
	ptw_u64 tasks;				/* new tasks that could not be followed: their calls are not counted */
};

#endif
