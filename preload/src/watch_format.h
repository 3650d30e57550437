/* SPDX-License-Identifier: MIT */
/*
 * What the supervisor leaves for watchpoints, in the file that PTWEAVE_WATCHES names (docs/watchpoints.md;
 * ptweave/wrapper/watches/plan.py writes it). Little-endian, version 1:
 *
 *   struct ptw_watch_plan, `files` of struct ptw_watch_file, `watches` of struct ptw_watch_wanted
 *
 * A file is known in memory by what it begins with, as with probes.
 */
#ifndef PTW_WATCH_FORMAT_H
#define PTW_WATCH_FORMAT_H

#include <stdint.h>

#define PTW_WATCH_MAGIC 0x3130484354415750ull /* "PWATCH01" */

enum {
	PTW_WATCH_VERSION = 1,
	PTW_WATCHES = 4,       /* the processor's debug registers */
	PTW_WATCH_BYTES = 32,  /* of one: all four of them, 8 bytes each */
	PTW_WATCH_FILES = 4,
	PTW_WATCH_IDENTITY = 1024,
	PTW_WATCH_ANYWHERE = -1, /* in place of a file: the address is as it is at run time */
};

enum ptw_watch_mode {
	PTW_WATCH_WRITE = 1,
	PTW_WATCH_READ = 2,
	PTW_WATCH_BOTH = 3,
};

/* What a hit was, in its event. */
enum ptw_watch_access {
	PTW_TOUCHED = 0, /* read, or written without a change: the processor does not tell */
	PTW_HAS_READ = 1,
	PTW_HAS_WRITTEN = 2,
	PTW_HAS_READ_AND_WRITTEN = 3,
	PTW_NOT_ASKED_FOR = 4, /* written, where only reads are wanted */
	PTW_BY_LIBTTHREAD = 5, /* for its own purposes, or while it had blocked signals */
};

struct ptw_watch_plan {
	uint64_t magic;
	uint32_t version;
	uint32_t files;
	uint32_t watches;
	uint32_t zero;
};

struct ptw_watch_file {
	uint64_t low, high; /* what it takes in memory, as it is linked */
	uint32_t identity;  /* bytes */
	uint32_t late;      /* 1: the program is not linked with it, but may load it */
	uint8_t begins[PTW_WATCH_IDENTITY];
};

struct ptw_watch_wanted {
	uint64_t address; /* in the file, as it is linked */
	int32_t file;
	uint32_t length;
	uint32_t mode; /* enum ptw_watch_mode */
	uint32_t zero;
};

_Static_assert(sizeof(struct ptw_watch_plan) == 24, "plan layout");
_Static_assert(sizeof(struct ptw_watch_file) == 1048, "file layout");
_Static_assert(sizeof(struct ptw_watch_wanted) == 24, "watch layout");

/* The soft engine's watchpoints (wrapper/engine/watch.c): a client request, whose arguments are an array of
 * struct ptw_watched_range and how many. It answers 1. A hit is a SIGTRAP as of a processor's watchpoint, whose
 * si_perf_data is PTW_WATCH_BY_ENGINE with bit i: range i was written, bit 16 + i: it was read; si_addr is the
 * instruction. */
#define PTW_WATCH_REQUEST 0x50540001ul /* VG_USERREQ_TOOL_BASE('P', 'T') + 1 */
#define PTW_WATCH_BY_ENGINE 0x5057455400000000ull
#define PTW_WATCH_BY_PROCESSOR 0x5057505500000000ull /* with the watch's number */
#define PTW_WATCH_BY 0xffffffff00000000ull

struct ptw_watched_range {
	uint64_t address, length, mode;
};

#endif
