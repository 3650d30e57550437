/* SPDX-License-Identifier: MIT */
/*
 * Process mode: where everything lies. The same addresses in every process of the program.
 *
 * One memfd backs all memory the threads share. Its first part is mapped at PTW_REGION with each process's own page
 * protections (that is how accesses are found), all of it once more at PTW_ALIAS, always open, for the library itself.
 *
 *   PTW_META    the library's shared state
 *   PTW_OWN     the library's state of this process
 *   PTW_REGION  stacks, then heap and private anonymous mappings: tracked
 *   PTW_ALIAS   the whole memfd; memory nobody tracks (stdio's buffers, thread-local storage of the loader) lives here
 *   PTW_FILES   mappings of files and of shared memory: tracked
 *
 * The addresses fit the range that software engines leave to programs. Everything is mapped without reserve: only what
 * is touched costs memory. Limits: PTW_SLOTS threads at once, PTW_NEAR_SIZE of heap and private mappings and what is
 * left of PTW_HEAP_SIZE for larger mappings, PTW_DATA_SIZE of writable data in executable and libraries,
 * PTW_FILES_SIZE of mapped files.
 */
#ifndef PTW_LAYOUT_H
#define PTW_LAYOUT_H

#include <stdint.h>

#define PTW_PAGE 4096ull
#define PTW_SLOTS 1024u
#define PTW_TASK_BODIES 1024u

/* What every new process looks at lies within 512 GiB, and much of it within a few blocks of 2 MiB: so it costs few pages
 * of page tables, each of which is made, walked and given back with the process. */
#define PTW_LOWEST 0x10000000000ull
#define PTW_META PTW_LOWEST
#define PTW_OWN_FLOOR (PTW_LOWEST + (48ull << 30))
#define PTW_REGION (PTW_LOWEST + (64ull << 30))
#define PTW_REGION_SIZE (896ull << 30)
#define PTW_STACK_AREA (16ull << 20) /* of each slot; larger stacks come from the heap */
#define PTW_STACKS_SIZE (PTW_SLOTS * PTW_STACK_AREA)
#define PTW_STACK_MARGIN (64ull << 10) /* at an area's low end: never accessible */
#define PTW_HEAP (PTW_REGION + PTW_STACKS_SIZE)
#define PTW_HEAP_SIZE (PTW_REGION_SIZE - PTW_STACKS_SIZE)
#define PTW_NEAR_SIZE (48ull << 30) /* of the heap; behind it lie only mappings too large for it */

/* In the memfd, behind the region. */
#define PTW_DATA_OFFSET PTW_REGION_SIZE
#define PTW_DATA_SIZE (2ull << 30)
#define PTW_LIBC_OFFSET (PTW_DATA_OFFSET + PTW_DATA_SIZE) /* libc's data and main's thread-local storage */
#define PTW_LIBC_SIZE (2ull << 30)
#define PTW_OPEN_OFFSET (PTW_LIBC_OFFSET + PTW_LIBC_SIZE) /* untracked heap */
#define PTW_OPEN_SIZE (8ull << 30)
#define PTW_META_OFFSET (PTW_OPEN_OFFSET + PTW_OPEN_SIZE)

#define PTW_ALIAS 0x20000000000ull
#define PTW_OPEN_HEAP (PTW_ALIAS + PTW_OPEN_OFFSET)

#define PTW_FILES 0x30000000000ull
#define PTW_FILES_SIZE (256ull << 30)
#define PTW_FILES_ALIAS (PTW_FILES + (512ull << 30)) /* those that hold synchronisation objects once more, always open */
#define PTW_HIGHEST (PTW_FILES_ALIAS + PTW_FILES_SIZE)

/* Pages are numbered: first those of the memfd that are tracked, then those of mapped files. */
#define PTW_REGION_PAGES (PTW_REGION_SIZE / PTW_PAGE)
#define PTW_DATA_PAGES (PTW_DATA_SIZE / PTW_PAGE)
#define PTW_MEMFD_PAGES (PTW_REGION_PAGES + PTW_DATA_PAGES)
#define PTW_FILES_PAGES (PTW_FILES_SIZE / PTW_PAGE)
#define PTW_PAGES (PTW_MEMFD_PAGES + PTW_FILES_PAGES)
#define PTW_PAGE_NONE UINT32_MAX

/* The heap is given out in units; a unit is of one size class, or part of a run. */
#define PTW_UNIT (64ull << 10)
#define PTW_UNITS (PTW_HEAP_SIZE / PTW_UNIT)
#define PTW_NEAR_UNITS (PTW_NEAR_SIZE / PTW_UNIT)
#define PTW_GRANULE 16ull
#define PTW_GRANULES (PTW_NEAR_SIZE / PTW_GRANULE)

#define PTW_MAILBOX (1u << 16) /* pages asked back from a slot at a time */

#define PTW_TWINS (1u << 15) /* private copies of pages a process has at a time; before it needs more it commits them */
#define PTW_PAGE_LOCKS 2048u

#define PTW_META_HEAD (128ull << 20)                     /* struct ptw_meta, and what follows */
#define PTW_META_STARTS (PTW_META + (512ull << 10))      /* thread.c's pool */
#define PTW_META_STARTS_SIZE (512ull << 10)
/* What each new process looks at lies in the same 2 MiB, and most of it in one block of 64 KiB, so that it costs few page
 * faults and one page table. */
#define PTW_META_HOT (PTW_META + (1ull << 20))
#define PTW_META_REVOKED PTW_META_HOT                    /* revoke.c */
#define PTW_META_OPEN_HEADS (PTW_META_HOT + (16ull << 10)) /* heap_open.c */
#define PTW_META_CHILDREN (PTW_META_HOT + (20ull << 10)) /* warden.c */
#define PTW_META_SIGNALS (PTW_META_HOT + (24ull << 10))  /* dispositions.h */
#define PTW_META_PROGRAM (PTW_META_HOT + (32ull << 10))  /* program.h */
#define PTW_META_PROGRAM_SIZE (352ull << 10)
#define PTW_META_KEPT (PTW_META_HOT + (384ull << 10))     /* kept_files.c */
#define PTW_META_KEPT_SIZE (8ull << 10)
#define PTW_META_RULES (PTW_META_HOT + (768ull << 10))   /* unwind.c */
#define PTW_META_RULES_SIZE (128ull << 10)
#define PTW_META_FILES (PTW_META_HOT + (960ull << 10))   /* struct ptw_mapping */
#define PTW_META_FILES_SIZE (1ull << 20)
#define PTW_META_PENDING (PTW_META + (5ull << 20))       /* pending.h */
#define PTW_META_ERRANDS (PTW_META + (6ull << 20))       /* struct ptw_errand [PTW_SLOTS] */
#define PTW_META_TIMERS (PTW_META + (7ull << 20))        /* timers.c */
#define PTW_META_WATCHES (PTW_META + (7ull << 20) + (512ull << 10)) /* children.c */
#define PTW_META_BINS (PTW_META + (8ull << 20))          /* units.c */
#define PTW_META_SIGNAL_FILES (PTW_META + (9ull << 20))  /* signal_files.h */
#define PTW_META_EXEC (PTW_META + (9ull << 20) + (512ull << 10)) /* exec.c */
#define PTW_META_PAGE_LOCKS (PTW_META + (10ull << 20))   /* commit.c: uint32_t, PTW_PAGE_LOCKS of them, 64 bytes apart */
#define PTW_META_SEGMENTS (PTW_META + (12ull << 20))     /* segments.h */
#define PTW_META_SEGMENTS_SIZE (4ull << 20)
#define PTW_META_CODE (PTW_META + (16ull << 20))         /* code_files.h */
#define PTW_META_CODE_SIZE (80ull << 20)
#define PTW_META_OBJECTS (PTW_META + PTW_META_HEAD)                          /* the object table of objects.h */
#define PTW_META_UNITS (PTW_META_OBJECTS + (16ull << 20))                    /* struct ptw_unit [PTW_UNITS] */
#define PTW_META_HEAPS (PTW_META_UNITS + PTW_UNITS * 16ull)                  /* struct ptw_heap [PTW_SLOTS] */
#define PTW_META_READERS (PTW_META_HEAPS + PTW_SLOTS * 4096ull)              /* uint64_t [PTW_PAGES] */
#define PTW_META_WRITER (PTW_META_READERS + PTW_PAGES * 8ull)                /* uint16_t [PTW_PAGES] */
#define PTW_META_LIMIT (PTW_META_WRITER + PTW_PAGES * 2ull)                  /* uint8_t [PTW_PAGES], limits.h */
#define PTW_META_MAILBOX (PTW_META_LIMIT + PTW_PAGES * 1ull)                 /* uint32_t [PTW_SLOTS][PTW_MAILBOX] */
#define PTW_META_LINKS (PTW_META_MAILBOX + PTW_SLOTS * (uint64_t)PTW_MAILBOX * 4ull) /* uint32_t [PTW_GRANULES] */
#define PTW_META_VERSIONS (PTW_META_LINKS + PTW_GRANULES * 4ull)             /* uint32_t [PTW_MEMFD_PAGES]: view.h */
#define PTW_META_COPIES (PTW_META_VERSIONS + PTW_MEMFD_PAGES * 4ull)         /* uint16_t [PTW_MEMFD_PAGES]: view.h */
#define PTW_META_TRAITS (PTW_META_COPIES + PTW_MEMFD_PAGES * 2ull)           /* uint8_t [PTW_MEMFD_PAGES]: view.h */
#define PTW_META_ASKED (PTW_META_TRAITS + PTW_MEMFD_PAGES * 1ull)            /* held.c: uint64_t [PTW_MEMFD_PAGES] */
#define PTW_META_CHANGES (PTW_META_ASKED + PTW_MEMFD_PAGES * 8ull)           /* view.h: uint64_t [PTW_MEMFD_PAGES][8] */
#define PTW_META_END (PTW_META_CHANGES + PTW_MEMFD_PAGES * 64ull)
#define PTW_META_SIZE (PTW_META_END - PTW_META)

#define PTW_ALIAS_SIZE PTW_META_OFFSET
#define PTW_MEMFD_SIZE (PTW_META_OFFSET + ((PTW_META_SIZE + PTW_PAGE - 1) & ~(PTW_PAGE - 1)))

/* Before it, within the same 2 MiB: a copy of the arguments, the stacks of the handler of faults, and that of aside.h. */
#define PTW_OWN_ARGUMENTS_END (PTW_OWN_FLOOR + (1ull << 20))
#define PTW_OWN_STACK (PTW_OWN_ARGUMENTS_END + PTW_UNIT)
#define PTW_OWN_STACK_SIZE (2 * PTW_UNIT)
#define PTW_OWN_ASIDE (PTW_OWN_STACK + PTW_OWN_STACK_SIZE + PTW_UNIT)
#define PTW_OWN_ASIDE_SIZE (2 * PTW_UNIT)
#define PTW_OWN (PTW_OWN_ASIDE + PTW_OWN_ASIDE_SIZE + PTW_UNIT)
#define PTW_OWN_STATES PTW_OWN                           /* uint8_t [PTW_PAGES] */
#define PTW_OWN_CONTESTED (PTW_OWN_STATES + PTW_PAGES)   /* uint8_t [PTW_PAGES]: held.c */
#define PTW_OWN_OPENED (PTW_OWN_CONTESTED + PTW_PAGES)   /* what this thunk opened (exact.c); what is kept (held.c) */
#define PTW_OWN_OPENED_SIZE (256ull << 20)
#define PTW_OWN_COPY_OF (PTW_OWN_OPENED + PTW_OWN_OPENED_SIZE) /* twins.h: uint32_t [PTW_MEMFD_PAGES] */
#define PTW_OWN_COPIES (PTW_OWN_COPY_OF + PTW_MEMFD_PAGES * 4ull) /* struct ptw_copy [PTW_TWINS] */
#define PTW_OWN_TWINS (PTW_OWN_COPIES + PTW_TWINS * 16ull)     /* a page each */
#define PTW_OWN_PATIENCE (PTW_OWN_TWINS + PTW_TWINS * PTW_PAGE) /* private.c: uint8_t [PTW_MEMFD_PAGES] */
#define PTW_OWN_IDLE (PTW_OWN_PATIENCE + PTW_MEMFD_PAGES)         /* private.c: uint32_t [PTW_TWINS] */
#define PTW_OWN_SIZE (PTW_OWN_IDLE + PTW_TWINS * 4ull - PTW_OWN)

_Static_assert(PTW_META_SIZE < PTW_OWN_FLOOR - PTW_META, "room below, too, for arguments");
_Static_assert(PTW_OWN + PTW_OWN_SIZE < PTW_REGION, "ends before the region");
_Static_assert(PTW_REGION + PTW_REGION_SIZE <= PTW_ALIAS, "ends before the alias");
_Static_assert(PTW_ALIAS + PTW_ALIAS_SIZE <= PTW_FILES, "ends before mapped files");
_Static_assert(PTW_PAGES < PTW_PAGE_NONE, "pages are numbered in 32 bits");
_Static_assert(PTW_GRANULES < UINT32_MAX, "granules are numbered in 32 bits");

static inline uint64_t ptw_page_down(uint64_t address) { return address & ~(PTW_PAGE - 1); }
static inline uint64_t ptw_page_up(uint64_t address) { return ptw_page_down(address + PTW_PAGE - 1); }

#endif
