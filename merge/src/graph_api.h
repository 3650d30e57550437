/* SPDX-License-Identifier: MIT */
/*
 * What Python sees of the provenance graph: from vector clocks and accesses of pages to edges and races.
 *
 * Thunk k of thread i happens before thunk m of another thread j exactly when component i of m's clock is beyond k.
 * An access is a span: a page was open to a thread from one of its thunks to another (the same one, where every thunk's
 * own accesses were recorded), so "the last writer" of a page is the end of the part of a span that was visible.
 *
 * Not thread-safe: one thread at a time uses a graph. Whoever calls ptm_graph_create calls ptm_graph_destroy; arrays given
 * to it stay the caller's and must outlive it. Errors are negative errno values; every thread and thunk that comes from
 * outside is checked before it is used (-EINVAL).
 *
 * The text between the guards is also the cffi definition: plain declarations only.
 */
#ifndef PTWEAVE_MERGE_GRAPH_API_H
#define PTWEAVE_MERGE_GRAPH_API_H

#include <stddef.h>
#include <stdint.h>

/* cdef: begin */

/* The clocks of all thunks. A clock is cut into chunks of 1 << shift components, the last one filled up with zeros, and
 * each chunk is there once for all thunks of a thread in a row that have it: most differ from the one before in few. What
 * a thread knows of itself is left out.
 *
 * Rows of a thread lie in blocks: rows of `width` numbers of chunks each, from index[begin] on, the first one that of
 * thunk `first`. Those of thread i are blocks[block[i]] to blocks[block[i + 1] - 1], in order; it has count[i] thunks. Chunk
 * number c is chunks[c << shift] and what follows; number 0 is all zeros. Components beyond a row's are 0. */
struct ptm_clock_block {
	int64_t begin;
	int32_t first;
	int32_t width;
};

struct ptm_clocks {
	const uint32_t *chunks;
	const uint32_t *index;
	const struct ptm_clock_block *blocks;
	const int32_t *block;
	const int32_t *count;
	int32_t threads;
	int32_t shift;
};

/* Clocks of one thread on their way into chunks. `last` and `at`: the row before, its components and the numbers of its
 * chunks, `width` chunks (zeros where there is none). `next`: the next chunk's number. */
struct ptm_packing {
	uint32_t *last;
	uint32_t *at;
	uint32_t next;
	int32_t width;
	int32_t shift;
	int32_t own;
};

enum ptm_span_flag {
	PTM_SPAN_WRITES = 1, /* the page may have been written in all of the span (it may always have been read) */
	PTM_SPAN_KNOWN = 2,  /* in its first thunk it was accessed for certain, at `site` */
	PTM_SPAN_WROTE = 4   /* that access was a write: also where what was written is told by other spans, with runs */
};

/* A page open to a thread from thunk `first` to `until`. With `runs` it is no such thing: in thunk `first` exactly these
 * bytes of it were written, elements of the array of runs, offset in the page | length << 16. */
struct ptm_span {
	uint64_t page;
	uint64_t address;  /* first byte accessed; 0 unknown */
	uint64_t site;     /* the instruction that accessed it; 0 unknown */
	int64_t run;       /* its first run */
	uint32_t runs;
	uint32_t flags;    /* enum ptm_span_flag */
	int32_t program;   /* whose memory it is */
	int32_t thread;
	int32_t first;
	int32_t until;
};

/* `to` may depend on `from`: what thunks from_thunk to from_until wrote can be read in to_thunk to to_until. For
 * synchronisation each of them is one thunk. `runs` as of spans: the bytes last written by `from`; 0 unknown. */
struct ptm_edge {
	uint64_t page;
	int64_t run;
	uint32_t runs;
	int32_t program;
	int32_t from_thread;
	int32_t from_thunk;
	int32_t from_until;
	int32_t to_thread;
	int32_t to_thunk;
	int32_t to_until;
};

enum ptm_overlap {
	PTM_OVERLAP_PAGE,    /* nothing is known but that both accessed the page */
	PTM_OVERLAP_ADDRESS, /* both accessed bytes of the same word (8 bytes) first */
	PTM_OVERLAP_BYTES    /* the same bytes */
};

/* Two places in the code where two threads accessed a page, at least one of them writing, in thunks neither of which
 * happens before the other. `thunk`: of the first such pair; `count`: pairs. */
struct ptm_race {
	uint64_t page;
	uint64_t site[2];
	uint64_t address[2];
	int32_t thread[2];
	int32_t thunk[2];
	uint32_t wrote[2];
	int64_t count;
	int32_t program;
	int32_t overlap;   /* enum ptm_overlap */
};

struct ptm_graph;

/* Packs n rows more; row i has the components values[offsets[i]] to values[offsets[i + 1] - 1], what is beyond the width is
 * left out. Writes n * width numbers to `index`, and new chunks to `chunks`, which has room for as many. Returns how many
 * chunks, or -EOVERFLOW when there are more than numbers, or -EINVAL. */
int64_t ptm_clocks_pack(struct ptm_packing *packing, const int32_t *offsets, const uint32_t *values, size_t n,
			uint32_t *index, uint32_t *chunks);
int ptm_graph_create(const struct ptm_clocks *clocks, struct ptm_graph **ret);
void ptm_graph_destroy(struct ptm_graph *graph);
/* Edges of synchronisation into thunks first to first + n - 1 of a thread: of those with acquire[i] set, from the last
 * thunks of other threads that their clocks came to know. */
int ptm_graph_sync(struct ptm_graph *graph, int32_t thread, const uint8_t *acquire, int32_t first, size_t n);
/* Edges and races of pages: all spans of each, sorted by (program, page, thread, first). */
int ptm_graph_pages(struct ptm_graph *graph, const struct ptm_span *spans, size_t n, const uint32_t *runs,
		    size_t n_runs);
/* What was found since the last call of each; valid until the graph is used again. Runs are those of the edges. */
const struct ptm_edge *ptm_graph_edges(struct ptm_graph *graph, size_t *ret, const uint32_t **ret_runs,
				       size_t *ret_n_runs);
const struct ptm_race *ptm_graph_races(struct ptm_graph *graph, size_t *ret);

/* cdef: end */

#endif
