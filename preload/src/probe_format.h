/* SPDX-License-Identifier: MIT */
/*
 * What the supervisor leaves for probes, in the folder that PTWEAVE_PROBES names (docs/probes.md tells how it is used;
 * ptweave/wrapper/probes/{plan,trampolines}.py write it). Little-endian, version 1.
 *
 *   plan           struct ptw_plan, `hits` of struct ptw_plan_hit, `functions` of struct ptw_plan_function
 *   0.so, 1.so, …  the trampolines of one patched file: an ELF file, at PTW_PROBE_AT of which is struct ptw_probe_file
 *   handler-N.so   the user's handlers
 *
 * A file of trampolines is mapped as one piece, as far as `loaded` says. Addresses are the patched file's own, as it is
 * linked; `nominal` is where the trampolines would lie among them. They lie elsewhere: the difference is subtracted
 * from the four bytes at each fixup.
 */
#ifndef PTW_PROBE_FORMAT_H
#define PTW_PROBE_FORMAT_H

#include <stdint.h>

#define PTW_PLAN_MAGIC 0x31304e4c50505450ull  /* "PTPPLN01" */
#define PTW_PROBE_MAGIC 0x3130424f52505450ull /* "PTPROB01" */

enum {
	PTW_PROBE_VERSION = 1,
	PTW_PROBE_AT = 0x400,
	PTW_PROBE_BEFORE = 24,
	PTW_PROBE_HITS = 1 << 20,
	PTW_PROBE_FILES = 1024,
	PTW_PROBE_FUNCTIONS = 4096,
	PTW_PROBE_SIZE = 256 << 20,
	PTW_PROBE_JUMP = 5,
};

enum ptw_probe_slot { PTW_SLOT_QUICK = 0, PTW_SLOT_FULL, PTW_PROBE_SLOTS };

enum ptw_probe_kind {
	PTW_PROBE_LOG = 1, /* that it was hit */
	PTW_PROBE_ARGS,    /* rdi, rsi, rdx, rcx, r8, r9 */
	PTW_PROBE_STACK,   /* the call stack */
	PTW_PROBE_TIME,    /* how long the function took */
	PTW_PROBE_RETURN,  /* what it returned */
	PTW_PROBE_USER,    /* a function of the user's */
	PTW_PROBE_ARRIVAL, /* our own: the loader says that libraries have come */
	PTW_PROBE_UNWIND,  /* our own: stacks are about to be unwound */
	PTW_PROBE_KINDS,
};

struct ptw_plan {
	uint64_t magic;
	uint32_t version;
	uint32_t hits;
	uint32_t files;
	uint32_t functions;
};

struct ptw_plan_hit {
	uint16_t kind; /* enum ptw_probe_kind */
	uint16_t function;
};

struct ptw_plan_function {
	char object[64]; /* file in the folder */
	char name[192];
};

struct ptw_probe_file {
	uint64_t magic;
	uint32_t version;
	uint32_t sites;
	uint32_t fixups;
	uint32_t slots;
	uint32_t identity; /* bytes */
	uint32_t zero;
	uint64_t loaded;   /* bytes of the file that are mapped */
	uint64_t nominal;
	uint64_t low, high; /* what the patched file takes in memory */
	uint64_t sites_at, fixups_at, slots_at; /* in this file; `identity` bytes follow the sites: what the patched file
						    begins with, by which it is known in memory */
};

struct ptw_probe_site {
	uint64_t address;
	uint32_t trampoline; /* where it begins in this file */
	uint32_t zero;
	uint8_t size;        /* of the instructions that moved */
	uint8_t before[PTW_PROBE_BEFORE];
	uint8_t zeros[7];
};

_Static_assert(sizeof(struct ptw_plan) == 24, "plan layout");
_Static_assert(sizeof(struct ptw_plan_hit) == 4, "hit layout");
_Static_assert(sizeof(struct ptw_plan_function) == 256, "function layout");
_Static_assert(sizeof(struct ptw_probe_file) == 88, "file layout");
_Static_assert(sizeof(struct ptw_probe_site) == 48, "site layout");

#endif
