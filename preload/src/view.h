/* SPDX-License-Identifier: MIT */
/*
 * When a thread's writes are seen by others. In the shared view all processes map the same memory, and there is nothing
 * to do: ptw_private is false and none of this is called. In the private view (release consistency) a page that a
 * thread opens for writing becomes its private copy, with a twin that says what it held then. At each boundary, that is
 * before a release and after an acquire, the bytes that differ are written to the shared memory (a commit), and what
 * others committed is taken over. Pages that are only read show the shared memory itself.
 *
 * Guaranteed: what happens before a release is seen after an acquire that follows it. No byte of a commit is one the
 * thread did not change; two threads may change different bytes of a page at a time. What a thread writes may be seen
 * earlier than its release, but never by half: aligned words of up to 8 bytes are stored at once.
 *
 * Not private: a thread's own stack (others write to copies of it), thread-local storage, the C library's data, mapped
 * files and shared mappings, and pages that are passed through (passing.c).
 *
 * Everything here is signal-safe: signals are blocked meanwhile. Copies belong to one process and its one thread.
 */
#ifndef PTW_VIEW_H
#define PTW_VIEW_H

#include "layout.h"
#include "sys.h"

#include <stdbool.h>

/* Accesses are tracked in this process, and the view is private. */
extern PTW_HIDDEN bool ptw_private;

enum ptw_page_trait {
	PTW_PASSED = 1, /* passed through: everybody maps the shared memory */
	PTW_LOOSE = 2,  /* the shared memory changes there without commits: stacks, synchronisation objects */
	PTW_UNTOLD = 4, /* passed through from the start (atomic_places.h); the first write tells so */
};

#define ptw_page_versions ((uint32_t *)PTW_META_VERSIONS) /* commits, by page */

/* By page and version, modulo their number: the lines (diff.h) of the page that the commit wrote to. What changes a page
 * otherwise counts its version up by PTW_CHANGES: nobody takes its lines from here then. */
enum { PTW_CHANGES = 8 };
#define ptw_page_changes ((uint64_t (*)[PTW_CHANGES])PTW_META_CHANGES)
#define ptw_page_copies ((uint16_t *)PTW_META_COPIES)     /* private copies there are, by page */
#define ptw_page_traits ((uint8_t *)PTW_META_TRAITS)

static inline char *ptw_page_alias(uint32_t page) { return (char *)(PTW_ALIAS + page * PTW_PAGE); }

/* A process begins: it has no copies. The thread ends: it commits, and sees the shared memory itself from then on. */
PTW_HIDDEN void ptw_view_begin(void);
PTW_HIDDEN void ptw_view_end(void);

/* Map pages closed; the second, where they were shared. This process has no copies of them. */
PTW_HIDDEN void ptw_view_map(uint32_t page, uint32_t count);
PTW_HIDDEN void ptw_view_unshare(uint32_t page, uint32_t count);

/* Map the shared memory itself, open: stacks, and what is passed through. The second: it is mapped so already. */
PTW_HIDDEN void ptw_view_share(uint32_t page, uint32_t count);
PTW_HIDDEN void ptw_view_is_shared(uint32_t page, uint32_t count);

/* Open for writing: copies with their twins. */
PTW_HIDDEN void ptw_view_write(uint32_t page, uint32_t count);

/* Before pages are closed: commit and give up the copies among them. */
PTW_HIDDEN void ptw_view_leave(uint32_t page, uint32_t count);

/* A boundary: commit every copy, and take over what others committed. */
PTW_HIDDEN void ptw_view_boundary(void);

/* Its halves, around a lock that others wait for. After a boundary with no code of the program's since: take over what
 * others committed. Before what ends a hold: commit, but close nothing (held pages only). */
PTW_HIDDEN void ptw_view_acquire(void);
PTW_HIDDEN void ptw_view_release(void);

/* A boundary in the midst of a thunk, where nothing ends: around calls that may hand something on (a pipe, a file, a
 * sleep in which others work), and every TICK of processor time, so that who waits for a plain flag does not wait for
 * ever. */
PTW_HIDDEN void ptw_view_exchange(void);

/* The same in all other threads, which have it behind them on return: what this one committed they have. One that is
 * stopped is not waited for longer than a second. */
PTW_HIDDEN void ptw_view_spread(void);

/* Around a call, to the end of the block. */
static inline void ptw_view_called(bool *exchanges)
{
	if (*exchanges)
		ptw_view_exchange();
}
#define PTW_VIEW_CALL                                                                          \
	__attribute__((cleanup(ptw_view_called))) bool exchanges = __builtin_expect(ptw_private, 0); \
	ptw_view_called(&exchanges)

/* All copies are committed and closed. Those that are wanted still come back. */
PTW_HIDDEN void ptw_view_give_up(void);

/* Before an object in [address, address + 64) is used through its alias (synchronisation objects): what this thread
 * wrote to it is committed first. */
PTW_HIDDEN void ptw_view_use(uint64_t address);

/* A block of memory is given up (free): whoever gets it next, here or in another thread, finds what is in the shared
 * memory. `away`: it goes to another thread. */
PTW_HIDDEN void ptw_view_give(uint64_t address, uint64_t size, bool away);

/* Memory changes hands: this process's copies of it are committed and closed. Memory was changed through its alias:
 * copies of it are out of date, in every process. */
PTW_HIDDEN void ptw_view_lose(uint64_t start, uint64_t size);
PTW_HIDDEN void ptw_view_changed(uint64_t start, uint64_t size);

/* The shared memory will change there without commits. */
PTW_HIDDEN void ptw_view_loosen(uint32_t page, uint32_t count);

/* Write to memory of another thread at once, past all copies; then have it seen by this one. */
PTW_HIDDEN void ptw_view_put(void *to, const void *from, uint64_t size);
PTW_HIDDEN void ptw_view_look(const void *at, uint64_t size);

/* From now on the page is passed through: an atomic instruction at `code` accesses `address` in it (0: a race was
 * found). All copies that exist are committed first, unless a process does not answer. */
PTW_HIDDEN void ptw_view_pass(uint64_t address, uint64_t code);

/* The same before anybody has a copy, of a page of atomic_places.h: it is told at the first write. */
PTW_HIDDEN void ptw_view_expect(uint32_t page);
PTW_HIDDEN void ptw_view_met(uint32_t page);

/* Commit the copies of pages that are passed through by now, and share them (control.c). */
PTW_HIDDEN void ptw_view_serve(void);

#endif
