/* SPDX-License-Identifier: MIT */
/*
 * The object table: how often each synchronisation object was released, and which thread a pthread_t stands for.
 *
 * Keyed by address, open addressing, never shrinks: an object keeps its place after it was destroyed, and its counter
 * goes on when another object comes to lie there (which can only add order that the memory's reuse implies anyway).
 * Bounded: PTW_OBJECT_PROBES places are tried, then the object has none. Who asks counts that as a loss.
 *
 * Lock-free, signal-safe, for all threads of a process. The memory is wiped in fork children (MADV_WIPEONFORK):
 * their versions begin again, and the fork itself carries the order.
 */
#ifndef PTW_OBJECTS_H
#define PTW_OBJECTS_H

#include "sys.h"

enum {
	PTW_OBJECTS = 1 << 18, /* 6 MiB of address space; touched pages only cost */
	PTW_OBJECT_PROBES = 128,
};

struct ptw_object {
	uint64_t key;     /* its address; bit 0 set for a pthread_t; 0: free */
	uint64_t version; /* releases so far; for a pthread_t, a ptw_thread_name */
	uint64_t count;   /* of a barrier; 0 unknown */
};

/* Map an empty table, or NULL. */
PTW_HIDDEN struct ptw_object *ptw_objects_init(void);
PTW_HIDDEN void ptw_objects_deinit(struct ptw_object *table);

/* The object's entry, made when there is none; NULL when the table is full around it. */
PTW_HIDDEN struct ptw_object *ptw_object_get(struct ptw_object *table, uint64_t key);

/* Count a release; returns the version it made. */
static inline uint64_t ptw_object_release(struct ptw_object *object)
{
	return __atomic_add_fetch(&object->version, 1, __ATOMIC_ACQ_REL);
}

/* The version an acquire sees. */
static inline uint64_t ptw_object_acquire(const struct ptw_object *object)
{
	return __atomic_load_n(&object->version, __ATOMIC_ACQUIRE);
}

/* What a pthread_t stands for while the thread lives: its serial (unique in the process) and its tid (22 bits:
 * PID_MAX_LIMIT). */
static inline uint64_t ptw_thread_name(uint64_t serial, uint32_t tid) { return serial << 22 | (tid & 0x3fffff); }
static inline uint64_t ptw_name_serial(uint64_t name) { return name >> 22; }
static inline uint32_t ptw_name_tid(uint64_t name) { return name & 0x3fffff; }

#endif
