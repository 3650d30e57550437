/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the program's threads (slots) and what they share beside memory.
 *
 * Slot 0 is the main thread. A slot belongs to one thread from pthread_create until the thread has ended and was
 * joined (or was detached). All of it lies in memory every process maps; who writes a field is said beside it.
 *
 * A thread's life is a robust mutex that it locks and never unlocks: the kernel marks its word when the process dies, of
 * whatever cause. Nobody needs to be told.
 */
#ifndef PTW_SLOTS_H
#define PTW_SLOTS_H

#include "layout.h"
#include "shared_lock.h"

#include <pthread.h>
#include <signal.h>

#define PTW_PLACES 4096u /* ranges of addresses at most; places.c */

enum ptw_slot_state {
	PTW_SLOT_FREE = 0,
	PTW_SLOT_STARTING,
	PTW_SLOT_RUNNING,
	PTW_SLOT_ENDED, /* by itself: its start routine returned, or it left by pthread_exit or cancellation */
};

enum ptw_schedule { PTW_SCHEDULE_INHERITED = 0, PTW_SCHEDULE_WANTED, PTW_SCHEDULE_BEGUN, PTW_SCHEDULE_DONE };

struct ptw_slot {
	pthread_mutex_t life; /* robust; locked by its thread, for good */
	uint32_t state;                /* enum ptw_slot_state */
	uint32_t pid;                  /* of the process, and its tid */
	uint32_t helper;               /* futex: the tid that made the process; 0 once it is gone (the kernel's doing) */
	uint32_t helper_tid;
	uint64_t robust; /* list of the thread's robust mutexes, and its size, as glibc registered it */
	uint64_t robust_size;
	uint32_t detached;
	uint32_t joined;               /* somebody waits to join, or has */
	uint32_t awaited;              /* somebody waits for its life to begin */
	uint32_t creator;              /* slot */
	uint32_t error;                /* of the clone that failed */
	uint32_t requests;             /* PTW_REQUEST_ bits, see control.c */
	uint32_t napping;              /* requests that can wait are not signalled, see nap.h */
	pthread_t handle;
	void *result;
	void *(*routine)(void *);
	void *argument;
	uint64_t stack; /* low end; size in bytes: whole pages */
	uint64_t stack_size;
	uint64_t given; /* what of it the C library is given: of memory of the program, less than whole pages */
	uint64_t given_size;
	uint64_t told_size; /* of its upper end: what the program asked for, and is told */
	uint64_t guard; /* bytes below the stack, as its attribute asks for; 0 for memory of the program */
	uint64_t stack_run; /* heap run that holds the stack, 0: the slot's area or the program's memory */
	uint64_t open_from; /* thread-local storage: always open to everybody, from here */
	uint64_t open_to;
	uint64_t mask;    /* that it begins with */
	uint64_t blocked; /* signals its thread blocks now: written by the thread, read by who has a signal to hand over */
	uint64_t waiting; /* signals its thread waits for now (sigwait); as above */
	uint64_t handed;  /* signals for the program handed to it since it last looked; see pending.h */
	uint32_t scheduled; /* enum ptw_schedule: policy (if not negative), priority and affinity are to be set */
	int32_t policy;
	int32_t priority;
	uint32_t fork_done; /* futex: its fork child has its own memory */
	int64_t fork_result;
	uint32_t joining; /* slot + 1 it waits for */
	uint32_t cancelled; /* by another thread */
	uint32_t pinned;  /* `affinity` is to be set */
	uint64_t affinity[16];
	uint32_t mail_lock;
	uint32_t mail;      /* entries in the mailbox */
	uint32_t overflow;  /* it was full: everything is asked back */
	uint32_t counted;    /* what it used is in the program's account */
	uint64_t view_served; /* the last request of passing.c it has met */
	uint64_t ids_seen;   /* changes of user and group ids its process has followed */
	uint32_t name_lock;
	uint32_t renaming;
	char name[16];       /* that somebody else gave it: PTW_REQUEST_NAME */
	uint32_t generation; /* counts the threads that had this slot */
};

struct ptw_meta {
	uint32_t lock;       /* of slots */
	uint32_t slots_high; /* slots [0, high) were ever used */
	uint32_t alive;      /* threads that have not ended; futex */
	uint32_t main_pid;
	uint32_t main_parent;
	uint32_t handshake_lock;
	uint32_t main_slot; /* 0, but in a fork child of another thread */
	uint64_t serials;
	uint64_t view_asked; /* requests of passing.c */
	uint32_t herald;    /* tid of the main process's thread that takes signals and errands; 0 none */
	uint32_t exec_slot; /* slot + 1 whose exec the main process is to do */
	uint32_t units_lock;
	uint32_t segments_lock;  /* while a process loads libraries */
	uint32_t untracked_lock; /* under it, or alone */
	uint32_t open_lock;
	uint32_t files_lock;
	uint32_t once_lock;
	uint32_t orphans_lock; /* the main process is a subreaper, for one thread's fork */
	uint32_t break_lock;
	uint32_t create_lock; /* glibc's list of threads */
	uint32_t semaphores_lock;
	uint32_t fork_handlers_lock;
	uint32_t places_given; /* so often was one asked for; places.c */
	uint32_t place_of_main;
	uint64_t places_used[PTW_PLACES / 64]; /* a bit each */
	uint64_t signals_kept; /* set; pending.c */
	uint64_t break_start, break_now; /* 0: nobody asked; brk.c */
	uint64_t open_used; /* bytes of the untracked heap ever given out */
	uint64_t task_bodies[PTW_TASK_BODIES]; /* openmp_tasks.c */
	const struct link_map *openmp_runtime; /* openmp_tool.c */
	struct ptw_named *semaphores; /* sem_names.c */
	struct ptw_fork_handler *fork_handlers, *last_fork_handler; /* fork.c */
	uint32_t openmp_has_tasks;
	struct ptw_slot slot[PTW_SLOTS];
};

#define ptw_shared ((struct ptw_meta *)PTW_META)
_Static_assert(sizeof(struct ptw_meta) <= PTW_META_STARTS - PTW_META, "ends before the start pool");

/* This thread's slot. Thread-local: right in every thread, in its own process or not. */
extern PTW_HIDDEN __thread uint32_t ptw_slot_index __attribute__((tls_model("initial-exec")));
static inline struct ptw_slot *ptw_slot(void) { return &ptw_shared->slot[ptw_slot_index]; }

/* Is this the thread whose process the program is? */
static inline bool ptw_is_main(void) { return ptw_slot_index == ptw_shared->main_slot; }

/* Is this the thread of its slot? It is not in a child that shares memory for a moment (vfork), nor in a thread that
 * the C library made for itself. */
static inline bool ptw_slot_runs(void) { return ptw_slot()->pid == (uint32_t)ptw_gettid(); }

/* This process is one of a program in process mode (and its memory is set up). */
extern PTW_HIDDEN bool ptw_process_mode;

/* Make its life one that can be begun. */
PTW_HIDDEN void ptw_slot_prepare(struct ptw_slot *slot);

/* Claim a free slot; -EAGAIN when all are in use. */
PTW_HIDDEN int ptw_slot_claim(void);
PTW_HIDDEN void ptw_slot_free(uint32_t index);

/* The slot of a thread that can still be named; -1 none. */
PTW_HIDDEN int ptw_slot_of(pthread_t thread);

/* The slot of a thread whose process has this number and is not gone; NULL none. Signal-safe. */
PTW_HIDDEN struct ptw_slot *ptw_slot_of_pid(pid_t pid);

/* Whether a thread's process has this number, or had it, as long as no other thread has its slot: what it sent is read
 * later. Signal-safe. */
PTW_HIDDEN bool ptw_slot_had_pid(pid_t pid);

/* The calling thread's life begins: its robust list must be registered. */
PTW_HIDDEN void ptw_slot_live(struct ptw_slot *slot);

/* True once the thread's process is gone. */
static inline bool ptw_slot_gone(const struct ptw_slot *slot)
{
	return ((uint32_t)__atomic_load_n(&slot->life.__data.__lock, __ATOMIC_ACQUIRE) & FUTEX_OWNER_DIED) != 0;
}

#endif
