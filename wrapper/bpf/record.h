/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the BPF programs and the consumer share: the records in the ring, how arguments are captured, and the counters.
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
typedef int ptw_s32;
typedef long long ptw_s64;
#else
#include <stdint.h>
typedef uint8_t ptw_u8;
typedef uint16_t ptw_u16;
typedef uint32_t ptw_u32;
typedef uint64_t ptw_u64;
typedef int32_t ptw_s32;
typedef int64_t ptw_s64;
#endif

enum ptw_limit {
	PTW_NUMBERS = 512,	/* call numbers with a counter and a description of their own; others share a counter */
	PTW_ARGUMENTS = 6,
	PTW_PATHS = 2,		/* path arguments of one call */
	PTW_PATH_SIZE = 4096,	/* bytes kept of a path or string: all of it when it fits PATH_MAX, NUL not counted */
	PTW_CAPTURE_LIMIT = 4096,	/* most bytes kept of a buffer */
	PTW_STRUCT_LIMIT = 512,	/* most bytes kept of a structure or an array of them */
	PTW_VECTORS = 16,	/* buffers looked at of one vector (struct iovec[]) */
	PTW_MESSAGES = 8,	/* messages looked at of one array (struct mmsghdr[]): it has 64 bytes a message */
	PTW_WORDS = 256,	/* words looked at of argv, and of envp */
	PTW_WORDS_SIZE = 8192,	/* and bytes kept of them */
	PTW_FRAMES = 64,	/* most frames of a call stack */
	PTW_ROOM = 1 << 14,	/* no capture begins behind so many bytes of others */
	PTW_SLACK = 3 << 12,	/* the last one may be so long */
	PTW_FILES = 3,		/* descriptors told of one call: two arguments and the result */
	PTW_CPUS = 1024,	/* processors with counters of their own; others share */
	PTW_QUICK = 2,		/* captures of a quick call: kept beside its task's state, not in a text of their own */
	PTW_QUICK_ROOM = 1056,	/* PTW_QUICK times struct ptw_chunk and PTW_STRUCT_LIMIT bytes */
	PTW_SEEN = 4,		/* open files that a task remembers the ids of */
	PTW_KEY = 504,		/* bytes of an exe path or command line in a filter, NULs included */
	PTW_BANKS = 2,		/* sets of filter rules: one in use, one being written */
	PTW_PROBES = 128,	/* places in programs that are probed */
	PTW_VALUES = 8,		/* values told of one */
	PTW_WORD = 64,		/* bytes kept of a string, and one string of a probe */
};

enum ptw_record_kind {
	PTW_RECORD_SYSCALL = 0,
	PTW_RECORD_BLOCKING = 1,
	PTW_RECORD_FD_CHANGE = 2,
	PTW_RECORD_SIGNAL = 3,
	PTW_RECORD_WRITE = 4,
	PTW_RECORD_GC = 5,		/* these three are of probes: struct ptw_probe */
	PTW_RECORD_JNI = 6,
	PTW_RECORD_UPROBE = 7,
	PTW_RECORD_EVENTS = 8,		/* kinds below are events: filters have a bit for each */
	PTW_RECORD_FILE = 8,		/* what an id of an open file stands for */
	PTW_RECORD_KINDS = 9,
};

/* How a call ended, and what is known of it. */
enum ptw_syscall_flag {
	PTW_SYSCALL_NO_EXIT = 1,	/* it never returned: exit, or its task died inside it */
	PTW_SYSCALL_NO_ENTER = 2,	/* refused before it began (seccomp, a tracer): t_enter is t_exit */
	PTW_SYSCALL_NO_ROOM = 4,	/* captures are missing: there was no room for more */
};

/* --- how a call's arguments are captured, by number ---------------------------------------------------------- */

enum ptw_capture {
	PTW_CAPTURE_NONE = 0,
	PTW_CAPTURE_PATH = 1,		/* a string that names a file */
	PTW_CAPTURE_STRING = 2,
	PTW_CAPTURE_STRUCT = 3,		/* `unit` bytes, so many times as `count` says */
	PTW_CAPTURE_BUFFER = 4,		/* the same, of the program's data: as much as the user wants */
	PTW_CAPTURE_VECTOR = 5,		/* struct iovec[]: the array, and what it points to */
	PTW_CAPTURE_MESSAGE = 6,	/* struct msghdr: it, its address, its data, its control messages */
	PTW_CAPTURE_WORDS = 7,		/* an array of strings with NULL at its end */
	PTW_CAPTURE_STACK = 8,		/* no argument: the call stack */
	PTW_CAPTURE_MESSAGES = 9,	/* struct mmsghdr[]: the array, and of each message what MESSAGE has */
};

enum ptw_count {
	PTW_COUNT_ONE = 0,
	PTW_COUNT_ARGUMENT = 1,		/* the argument `which` is the count */
	PTW_COUNT_RESULT = 2,		/* what the call returned */
	PTW_COUNT_POINTED = 3,		/* the argument `which` points to it, 32 bits */
	PTW_COUNT_BITS = 4,		/* bytes of as many bits as the argument `which` says, in words of 64 */
};

struct ptw_argument {
	ptw_u8 kind;			/* enum ptw_capture */
	ptw_u8 count;			/* enum ptw_count */
	ptw_u8 which;
	ptw_u8 pad;
	ptw_u16 unit;
	ptw_u16 pad2;
};

enum ptw_fd_operation { PTW_FD_NONE = 0, PTW_FD_OPEN = 1, PTW_FD_CLOSE = 2 };

struct ptw_description {
	ptw_u8 at_enter;		/* arguments to capture, a bit each */
	ptw_u8 at_exit;
	ptw_u8 at_failure;		/* of those at exit: when the call fails, too */
	ptw_u8 fds;			/* arguments that are descriptors, a bit each; the first two are told */
	ptw_u8 result_is_fd;
	ptw_u8 fd_operation;		/* enum ptw_fd_operation */
	ptw_u8 is_write;		/* writes data to its first argument */
	ptw_u8 quick;			/* it has captures, at most PTW_QUICK, and of structures and buffers alone */
	struct ptw_argument argument[PTW_ARGUMENTS];
};

/* --- records ------------------------------------------------------------------------------------------------- */

struct ptw_record {
	ptw_u16 kind;			/* enum ptw_record_kind */
	ptw_u16 flags;
	ptw_u32 number;			/* of the call, as the kernel got it */
	ptw_u32 pid;			/* in the recorder's pid namespace, as of the time of the call */
	ptw_u32 tid;
};

enum ptw_chunk_state {
	PTW_CHUNK_READ = 0,		/* `kept` bytes follow */
	PTW_CHUNK_UNREADABLE = 1,	/* NULL (of paths), or not readable at enter nor at exit */
	PTW_CHUNK_TRUNCATED = 2,	/* there is more, and how much is not known */
};

enum ptw_when { PTW_AT_ENTER = 0, PTW_AT_EXIT = 1 };

/*
 * Parts of one argument. Of a vector: the array, the data. Of a message: the header, the data, and these. Of an array of
 * messages: the array, and PTW_PARTS * n and more for the message n.
 */
enum ptw_part {
	PTW_PART_ITSELF = 0,
	PTW_PART_DATA = 1,
	PTW_PART_ADDRESS = 2,
	PTW_PART_CONTROL = 3,
	PTW_PARTS = 4,
};

/* A capture: `kept` bytes follow, padded to 8. */
struct ptw_chunk {
	ptw_u8 argument;		/* PTW_ARGUMENTS for the stack */
	ptw_u8 kind;			/* enum ptw_capture */
	ptw_u8 part;			/* enum ptw_part; of one of several messages with its number */
	ptw_u8 state : 4;		/* enum ptw_chunk_state */
	ptw_u8 when : 4;		/* enum ptw_when */
	ptw_u32 kept;
	ptw_u64 size;			/* bytes it has in the program */
};

struct ptw_syscall {
	struct ptw_record head;
	ptw_u64 t_enter;		/* CLOCK_MONOTONIC, ns */
	ptw_u64 t_exit;
	ptw_u64 ip;			/* user-space address after the system-call instruction */
	ptw_u64 args[PTW_ARGUMENTS];
	ptw_s64 result;
	ptw_u64 file[PTW_FILES];	/* ids of what descriptors refer to, 0 for none; the last is the result's */
	/* captures follow */
};

/* What an id stands for; sent before the first record that has it. The path's components follow, the last one first. */
struct ptw_file {
	struct ptw_record head;		/* head.flags: 1 when there are more components than follow */
	ptw_u64 t;
	ptw_u64 id;
	ptw_u64 inode;
	ptw_u32 device;			/* as the kernel has it: major << 20 | minor */
	ptw_u32 mode;			/* st_mode */
	ptw_u32 deleted;
	ptw_u32 size;			/* bytes of components, each with its NUL */
	char filesystem[16];
	char components[PTW_PATH_SIZE];	/* as many of them as `size` says are there */
};

#define PTW_FILE_HEAD __builtin_offsetof(struct ptw_file, components)

struct ptw_blocking {
	struct ptw_record head;
	ptw_u64 t;
	ptw_u64 duration;		/* ns from enter to exit */
	ptw_u64 run_delay;		/* of those, waiting for a processor though it could have run */
};

struct ptw_fd_change {
	struct ptw_record head;
	ptw_u64 t;
	ptw_u64 open_fds;
	ptw_u32 operation;		/* enum ptw_fd_operation */
	ptw_s32 fd;			/* -1 when it is not one descriptor */
	ptw_u32 complete;		/* all of the table was counted */
	ptw_u32 pad;
};

struct ptw_signal {
	struct ptw_record head;
	ptw_u64 t;
	ptw_u32 delivered;		/* 0: sent (by pid, tid); 1: about to act on its target (pid, tid) */
	ptw_s32 target_pid;
	ptw_s32 target_tid;
	ptw_s32 signal;
	ptw_s32 code;			/* si_code */
	ptw_s32 result;			/* include/trace/events/signal.h: TRACE_SIGNAL_*; -1 unknown */
	ptw_u64 handler;		/* delivered: 0 default action, 1 ignored, else its address */
};

struct ptw_write {
	struct ptw_record head;
	ptw_u64 t;
	ptw_u64 duration;
	ptw_s64 bytes;			/* the result, negative for an error */
	ptw_u64 file;
	ptw_s32 fd;
	ptw_u32 pad;
};

/* A probe was hit. */
struct ptw_probe {
	struct ptw_record head;		/* head.number: which probe */
	ptw_u64 t;
	ptw_u64 value[PTW_VALUES];	/* as wide as the specification says, zero behind that; 0 for what is not readable */
	ptw_u32 unreadable;		/* values that could not be read, a bit each */
	ptw_u32 size;			/* bytes of the string, NUL not counted */
	char text[PTW_WORD];
};

enum ptw_source {
	PTW_SOURCE_REGISTER = 0,	/* the value is in a register */
	PTW_SOURCE_MEMORY = 1,		/* in memory, at a register's value and an offset */
	PTW_SOURCE_STRING = 2,		/* a register points to a string; its value is the address */
	PTW_SOURCE_CONSTANT = 3,	/* the offset is the value */
};

struct ptw_value {
	ptw_u8 source;			/* enum ptw_source */
	ptw_u8 size;			/* bytes: 1, 2, 4, 8 */
	ptw_u16 place;			/* of the register in struct pt_regs, bytes */
	ptw_u32 pad;
	ptw_s64 offset;
};

/* What a probe tells; user space knows where it is. */
struct ptw_probe_spec {
	ptw_u32 kind;			/* enum ptw_record_kind */
	ptw_u32 count;			/* of values */
	struct ptw_value value[PTW_VALUES];
};

/* --- state ---------------------------------------------------------------------------------------------------- */

/* What tells an open file's name from others. */
struct ptw_file_key {
	ptw_u64 dentry;
	ptw_u64 inode;
	ptw_u64 mount;
	ptw_u64 operations;
	ptw_u64 number;
	ptw_u64 sequence;
	ptw_u64 name;			/* the kernel's hash of it, in its folder */
};

/* An open file that a task used, and its id; 0: none. */
struct ptw_seen_file {
	struct ptw_file_key key;
	ptw_u64 id;
};

/* What a followed task carries along: the call it is in. User space writes one to begin a tree. */
struct ptw_task {
	ptw_u32 active;			/* 0: in no call; 1: in `call`; 2: in one that did not pass */
	ptw_u32 newborn;		/* its next exit may be of a call whose enter was not seen */
	ptw_u32 retry;			/* arguments to read again at exit, a bit each */
	ptw_u32 has_text;		/* what is in its text storage is this call's */
	ptw_u32 generation;		/* of the filter rules `judged` was made with */
	ptw_u32 judged;			/* kinds of event that pass, a bit each */
	ptw_u32 pass;			/* the same, of the call under way */
	ptw_u32 used;			/* bytes of `quick` that are this call's */
	ptw_u64 comm[2];		/* as judged */
	ptw_u64 run_delay;		/* at enter */
	struct ptw_seen_file seen[PTW_SEEN];	/* by the low bits of the descriptor */
	struct ptw_syscall call;
	char quick[PTW_QUICK_ROOM];	/* captures of a quick call: with `call` before them a record as it is sent */
};

/* A rule of a filter: kinds of event, a bit each. */
struct ptw_rule {
	ptw_u32 accept;			/* these pass, of those that are active */
	ptw_u32 active;			/* the rule says something of these */
};

enum ptw_filter { PTW_FILTER_PID, PTW_FILTER_TID, PTW_FILTER_COMM, PTW_FILTER_EXE, PTW_FILTER_CMDLINE, PTW_FILTERS };

/* One set of rules beside the maps that hold them. */
struct ptw_bank {
	ptw_u32 used;			/* filters that have rules, a bit each */
	ptw_u32 fallback[PTW_FILTERS];	/* kinds that pass where a key is not found */
	ptw_u32 kinds;			/* kinds that are recorded at all */
	ptw_u32 pad;
};

/* Counters of one processor: programs add, the consumer reads them when the programs are gone. */
struct ptw_cpu_counts {
	ptw_u64 produced[PTW_RECORD_EVENTS];	/* calls of followed tasks that began, and other events */
	ptw_u64 submitted[PTW_RECORD_EVENTS];	/* records that are in the ring */
};

/* Losses. Each call that is counted in `produced` is in `submitted`, in one of these, or still inside the kernel. */
struct ptw_losses {
	ptw_u64 ring_full[PTW_NUMBERS + 1];	/* by call number; the last one for all others */
	ptw_u64 no_memory[PTW_NUMBERS + 1];	/* the kernel had none to remember the call in */
	ptw_u64 no_exit[PTW_NUMBERS + 1];	/* its exit was never seen, though its task went on */
	ptw_u64 events[PTW_RECORD_EVENTS];	/* ring full: of other kinds of event */
	ptw_u64 files;			/* ring full: definitions of files; they are sent again */
	ptw_u64 compat;			/* 32-bit calls: their numbers mean something else */
	ptw_u64 tasks;			/* new tasks that could not be followed: their calls are not counted */
	ptw_u64 io_uring;		/* operations submitted through io_uring_enter: they are no calls of their own */
};

#endif
