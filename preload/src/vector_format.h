/* SPDX-License-Identifier: MIT */
/*
 * The event vector's format: in shared memory, and in a file. Little-endian; version 1. docs/event-vector.md tells it
 * in words; tests/support/vector_reader.py reads it a second time.
 *
 * Memory (a memfd, sealed in its size):
 *
 *   head         PTV_HEAD bytes, struct ptv_head
 *   kinds        PTV_KINDS of struct ptv_kind_entry
 *   keys         PTV_KEYS of struct ptv_key_entry
 *   descriptors  list_count of struct ptv_list, rounded up to PTV_ALIGN
 *   lists        list_count of list_size bytes: events, one behind the other
 *
 * File:
 *
 *   head         PTV_HEAD bytes, struct ptv_file_head
 *   kinds, keys  as above, those that were there
 *   chunks       struct ptv_chunk, then `bytes` bytes of events, then what fills the chunk up to `span` bytes
 *
 * A list belongs to one lane of one producer: nobody else writes to it. What lies below the bytes in `committed` is
 * finished and does not change any more; what lies behind means nothing. In a file without a ring chunks stand in the
 * order they were written; one that is cut short holds the events that are there whole. In a ring every chunk has the
 * same span and `serial` tells the order; 0: it is being written anew.
 *
 * An event is a struct ptv_record, a word for each field of its kind, and what does not fit into a word:
 *
 *   - field i was set when bit i of `present` is; its word is the number itself, or of a string, bytes or words where
 *     they are: offset from the event's beginning in the low half, length in bytes in the high half;
 *   - pairs with ad-hoc keys form a chain from `pairs`, the newest first: each struct ptv_pair says where the one
 *     before it is. All offsets are below the event's size and go down.
 */
#ifndef PTW_VECTOR_FORMAT_H
#define PTW_VECTOR_FORMAT_H

#include <stdint.h>

#define PTV_MAGIC 0x0031434556575450ull      /* "PTWVEC1\0" */
#define PTV_FILE_MAGIC 0x0031465645575450ull /* "PTWEVF1\0" */
#define PTV_KEPT_BYTES (128ull << 20)        /* lists beyond that were needed in a burst: their memory goes back with them */

enum {
	PTV_VERSION = 1,
	PTV_ALIGN = 4096,
	PTV_HEAD = 4096,
	PTV_KINDS = 256,
	PTV_FIELDS = 32,
	PTV_KEYS = 4096,
	PTV_KEY_PROBES = 64,  /* entries looked at before a key counts as one that found no place */
	PTV_NAME = 56,        /* bytes of a kind's or key's name, with its NUL */
	PTV_FIELD_NAME = 31,  /* of a field's */
	PTV_EVENT_MAX = 128 << 10,
	PTV_LIST_SIZE = 1 << 20, /* unless asked otherwise */
	PTV_LIST_SIZE_MIN = PTV_EVENT_MAX,
	PTV_LIST_SIZE_MAX = 64 << 20,
	PTV_LIST_COUNT = 1024,
	PTV_LIST_COUNT_MAX = 4096,
	PTV_LANES = 8, /* events a thread may have under way at once */
	PTV_CHUNK_MAGIC = 0x43565450, /* "PTVC" */
	PTV_KEY_INLINE = 0xffff,
};

enum ptv_type {
	PTV_I64 = 1,
	PTV_U64 = 2,
	PTV_F64 = 3,
	PTV_STRING = 4, /* UTF-8 if all is well */
	PTV_BYTES = 5,
	PTV_WORDS = 6,  /* unsigned words of 64 bits: addresses of a call stack, say */
	PTV_TYPES,
};

enum ptv_state {
	PTV_FREE = 0,
	PTV_OPEN = 1, /* its owner writes to it */
	PTV_FULL = 2, /* handed over; the owner goes on in another list */
};

/* Why an event was not begun. */
enum ptv_drop {
	PTV_DROP_FULL = 0, /* no list was free and the consumer had not been heard of for 5 s */
	PTV_DROP_NESTED,   /* PTV_LANES events of this thread were under way */
	PTV_DROP_KIND,     /* its kind could not be declared */
	PTV_DROP_FORK,     /* while the process was becoming a producer of its own after a fork */
	PTV_DROPS,
};

enum {
	PTV_NAME_FREE = 0,
	PTV_NAME_CLAIMED = 1, /* being written, or whoever wrote it died */
	PTV_NAME_THERE = 2,
};

enum {
	PTV_TRUNCATED = 1, /* of `flags`: something was cut so that the event stays below PTV_EVENT_MAX */
};

struct ptv_field_entry {
	uint8_t type;
	char name[PTV_FIELD_NAME];
};

struct ptv_kind_entry {
	uint32_t state;
	uint32_t fields;
	char name[PTV_NAME];
	struct ptv_field_entry field[PTV_FIELDS];
};

/* Found by hash: at FNV-1a of the name, or up to PTV_KEY_PROBES behind it. */
struct ptv_key_entry {
	uint32_t state;
	uint32_t length;
	char name[PTV_NAME];
};

struct ptv_head {
	uint64_t magic;
	uint32_t version;
	uint32_t list_size;
	uint32_t list_count;
	uint32_t names_claimed; /* kinds and keys that anybody began to write, ever */
	uint32_t producers;     /* serials given out */
	uint32_t identity;      /* of this vector among others: random, not 0 */
	uint64_t heard;         /* when the consumer last looked: CLOCK_MONOTONIC, ns */
	uint64_t freed;         /* lists the consumer gave back, ever */
	uint32_t high __attribute__((aligned(64))); /* lists [0, high) were ever used */
	uint64_t dropped[PTV_DROPS] __attribute__((aligned(64)));
};

/* A list's descriptor. Its owner writes all of it while it is OPEN; afterwards only the consumer, which zeroes it
 * before it makes it FREE. `begun` and `lost` count events, finished ones are in `committed`. */
struct ptv_list {
	uint64_t owner;     /* state, tid << 8, pid << 32 */
	uint64_t committed; /* bytes below which all is finished, and events in them << 32 */
	uint64_t begun;
	uint64_t lost;      /* given up: their rest found no list, or a signal handler jumped away from them */
	uint32_t producer;  /* serial */
	uint32_t lane;
	uint64_t sequence;  /* n-th list of that lane */
	uint64_t zero[10];
};

struct ptv_record {
	uint32_t size; /* bytes, a multiple of 8 */
	uint16_t kind;
	uint16_t flags;
	uint64_t tsc;
	uint32_t present;
	uint32_t pairs; /* offset of the newest pair; 0 none */
	uint64_t field[];
};

/* A pair's value follows: a word, or `length` bytes. Where `key` is PTV_KEY_INLINE the key's name comes before it:
 * its length as a word, its bytes, up to a multiple of 8. */
struct ptv_pair {
	uint32_t before; /* offset of the pair before it; 0 none */
	uint16_t key;
	uint16_t type;
	uint64_t value; /* the number, or the length of what follows */
};

struct ptv_file_head {
	uint64_t magic;
	uint32_t version;
	uint32_t list_size;
	uint32_t slots; /* of the ring; 0: none */
	uint32_t closed; /* the consumer came to its end */
	uint64_t span;  /* bytes of a slot */
	uint64_t tsc0, tsc1; /* two moments: the TSC and CLOCK_MONOTONIC in ns */
	uint64_t t0, t1;
	uint64_t begun;       /* events wanted, as far as the lists read so far say */
	uint64_t stored;      /* events written to this file, ever */
	uint64_t lost;        /* as in the lists */
	uint64_t unfinished;  /* events of producers that died in the midst of them */
	uint64_t corrupt;     /* bytes in lists that contradicted themselves */
	uint64_t overwritten; /* events the ring gave up for newer ones */
	uint64_t unwritten;   /* events that found no room in the file system */
	uint64_t dropped[PTV_DROPS];
};

struct ptv_chunk {
	uint32_t magic;
	uint32_t bytes;
	uint64_t span;
	uint64_t serial; /* from 1 on */
	uint32_t pid;
	uint32_t tid;
	uint32_t producer;
	uint32_t lane;
	uint64_t sequence; /* of the list in its lane */
	uint32_t offset;   /* in that list */
	uint32_t events;
	uint64_t zero;
};

_Static_assert(sizeof(struct ptv_kind_entry) == 1088, "kind layout");
_Static_assert(sizeof(struct ptv_key_entry) == 64, "key layout");
_Static_assert(sizeof(struct ptv_list) == 128, "descriptor layout");
_Static_assert(sizeof(struct ptv_head) <= PTV_HEAD, "head layout");
_Static_assert(sizeof(struct ptv_record) == 24, "event layout");
_Static_assert(sizeof(struct ptv_pair) == 16, "pair layout");
_Static_assert(sizeof(struct ptv_chunk) == 64, "chunk layout");

#define PTV_KINDS_AT ((uint64_t)PTV_HEAD)
#define PTV_KEYS_AT (PTV_KINDS_AT + PTV_KINDS * sizeof(struct ptv_kind_entry))
#define PTV_NAMES_END (PTV_KEYS_AT + PTV_KEYS * sizeof(struct ptv_key_entry))

static inline uint64_t ptv_lists_at(uint32_t list_count)
{
	uint64_t end = PTV_NAMES_END + (uint64_t)list_count * sizeof(struct ptv_list);
	return (end + PTV_ALIGN - 1) & ~(uint64_t)(PTV_ALIGN - 1);
}

static inline uint64_t ptv_bytes(uint32_t list_count, uint32_t list_size)
{
	return ptv_lists_at(list_count) + (uint64_t)list_count * list_size;
}

static inline enum ptv_state ptv_state_of(uint64_t owner) { return (enum ptv_state)(owner & 0xff); }
static inline uint32_t ptv_tid_of(uint64_t owner) { return (uint32_t)(owner >> 8) & 0xffffff; }
static inline uint32_t ptv_pid_of(uint64_t owner) { return (uint32_t)(owner >> 32); }
static inline uint64_t ptv_owner(enum ptv_state state, uint32_t pid, uint32_t tid)
{
	return (uint64_t)state | (uint64_t)(tid & 0xffffff) << 8 | (uint64_t)pid << 32;
}

#endif
