/* SPDX-License-Identifier: MIT */
/*
 * Event lists: what a process logs, in a memfd shared with the supervisor.
 *
 * A thread owns a list of 1 MiB at a time (nobody else writes to it), hands it over when it is full and claims another.
 * The supervisor copies what is committed while the list is still open, frees lists that were handed over, and zeroes
 * them before that. The layout is mirrored in data/ptweave/data/lists.py; a test keeps the two equal.
 *
 * Guarantees: no locks, no allocation, no library calls. A writer belongs to one thread; signal handlers of that
 * thread may use it at any moment, also in the middle of a put. A record is there entirely or flagged PTW_RECORD_OPEN:
 * death at any instruction leaves the list readable. With no consumer, a put waits at most PTW_PATIENCE_NS once, and
 * then counts and drops. The mapping belongs to who called ptw_lists_init.
 */
#ifndef PTW_LISTS_H
#define PTW_LISTS_H

#include "event.h"
#include "sys.h"

enum {
	PTW_LIST_SIZE = 1 << 20,
	PTW_LIST_SLACK = 64 << 10,  /* kept for handlers that interrupt a put: they cannot change lists */
	PTW_LIST_COUNT = 1024,
	PTW_LIST_BACKLOG = 64,      /* lists that may wait for the consumer, beside one for each thread */
	PTW_LISTS_HEAD = 4096,
	PTW_LIST_NONE = 0xffffffff,
	PTW_NOTICES = 128,
	PTW_NOTICE_TEXT = 128,
	PTW_NOTICE_PATH = 160,
};

#define PTW_LISTS_MAGIC 0x003154534c575450ull /* "PTWLST1\0" */
#define PTW_LISTS_DATA (PTW_LISTS_HEAD + PTW_LIST_COUNT * 64 + PTW_NOTICES * 512)
#define PTW_LISTS_BYTES (PTW_LISTS_DATA + (uint64_t)PTW_LIST_COUNT * PTW_LIST_SIZE)
#ifndef PTW_PATIENCE_NS /* tests are less patient */
#define PTW_PATIENCE_NS 5000000000ull
#endif

enum ptw_list_state {
	PTW_LIST_FREE = 0,
	PTW_LIST_OPEN = 1, /* its owner writes to it */
	PTW_LIST_FULL = 2, /* handed over; the owner goes on in another list */
	PTW_LIST_LAST = 3, /* handed over by a thread that has ended */
};

/* One list's descriptor. Only the owner writes while it is OPEN, only the supervisor afterwards. */
struct ptw_list {
	uint32_t state;
	uint32_t tid;
	uint64_t serial;    /* of its thread, unique in the process; 0: being claimed */
	uint64_t sequence;  /* n-th list of that thread */
	uint64_t reserved;  /* bytes given out to records */
	uint64_t committed; /* bytes below which every record is finished */
	uint64_t count;     /* records finished */
	uint64_t attempts;  /* records wanted */
	uint64_t lost;      /* records that had no room, or that a handler jumped away from */
};

/* What a notice is about: `offset` and `path` are those in the file that is mapped there, if there is one. */
struct ptw_notice_place {
	uint64_t address; /* 0: none */
	uint64_t offset;  /* as the file's own addresses have it */
	char path[PTW_NOTICE_PATH]; /* as the loader knows it */
	uint32_t known;
	uint32_t zero;
};

/* One notice (notice.h). Whoever claimed it writes it; it is there when its state is 2. */
struct ptw_notice {
	uint32_t state;
	uint32_t kind; /* enum ptw_notice_kind */
	uint32_t tid;
	uint32_t zero;
	struct ptw_notice_place code, object;
	char text[PTW_NOTICE_TEXT];
};

struct ptw_lists {
	uint64_t magic;
	uint32_t list_size;
	uint32_t list_count;
	uint32_t high; /* lists [0, high) were ever used */
	uint32_t live; /* lists that are OPEN */
	uint64_t unlisted;  /* records lost by threads that own no list */
	uint64_t untracked; /* records whose object found no place in the object table */
	uint32_t notices;      /* entries claimed */
	uint32_t notices_lost; /* notices that found the table full */
	uint64_t zero[2];
	uint64_t freed; /* lists the supervisor gave back, ever; only it writes this */
	unsigned char pad[PTW_LISTS_HEAD - 72];
	struct ptw_list list[PTW_LIST_COUNT];
	struct ptw_notice notice[PTW_NOTICES];
};

_Static_assert(sizeof(struct ptw_list) == 64, "descriptor layout");
_Static_assert(sizeof(struct ptw_notice) == 512, "notice layout");
_Static_assert(sizeof(struct ptw_lists) == PTW_LISTS_DATA, "head layout");

/* A thread's end of the lists. */
struct ptw_writer {
	struct ptw_lists *lists;
	struct ptw_list *list; /* NULL: none */
	unsigned char *data;
	uint64_t serial;
	uint64_t sequence; /* of the next list */
	uint64_t freed_seen;
	uintptr_t frame;   /* stack address of the outermost put under way; 0 none */
	uint32_t tid;
	uint32_t pending;  /* size of the outermost put's record while its place may have no size word */
	uint32_t dropping; /* the consumer was given up until it frees a list */
	int liveness;      /* descriptor whose hang-up says that the consumer is gone; -1 none */
};

/* Make the memfd, sealed in its size. Returns its descriptor (close-on-exec) and the mapping, or negative errno. With
 * `at`, the mapping replaces what is there. */
PTW_HIDDEN int ptw_lists_init(void *at, struct ptw_lists **ret);
PTW_HIDDEN void ptw_lists_deinit(struct ptw_lists *lists);

/* Claim a first list. -ENOBUFS when none is free: the writer then only counts. */
PTW_HIDDEN int ptw_writer_init(struct ptw_writer *writer, struct ptw_lists *lists, uint32_t tid, uint64_t serial,
			       int liveness);

/* Hand the last list over. */
PTW_HIDDEN void ptw_writer_deinit(struct ptw_writer *writer);

/* Append one record: `record->frames` words of `stack` follow it; `size` is filled in here. */
PTW_HIDDEN void ptw_writer_put(struct ptw_writer *writer, const struct ptw_record *record, const uint64_t *stack);

PTW_HIDDEN uint32_t ptw_list_index(const struct ptw_writer *writer);

/* Reserve `size` bytes in a list; returns the offset. Its first instruction is the reservation, so that its block
 * stands in the recorded control flow once for each record, in record order, even when signals come in between. */
PTW_EXPORT uint64_t ptweave_mark(uint64_t *reserved, uint64_t size);

/* The same for records of accesses, which begin no thunk. */
PTW_EXPORT uint64_t ptweave_mark_access(uint64_t *reserved, uint64_t size);

#endif
