/* SPDX-License-Identifier: MIT */
/*
 * What Python sees of the merge's C part: scanning a flow for system calls, and walking it with a shadow call
 * stack to fill the tree of call stacks.
 *
 * One walk at a time uses a tree; several walks, each with a tree of its own, may go over one program at a time.
 * Nothing is freed behind the caller's back: whoever calls *_create calls *_destroy, and the arrays given to
 * ptm_program_create stay the caller's and must outlive the program. Errors are negative errno values. Every index that
 * comes from a table is checked before it is used.
 *
 * The text between the guards is also the cffi definition: plain declarations only.
 */
#ifndef PTWEAVE_MERGE_API_H
#define PTWEAVE_MERGE_API_H

#include <stddef.h>
#include <stdint.h>

/* cdef: begin */

/* What ends a block; the order is ptweave.data.schemas.BlockClass's. */
enum ptm_class {
	PTM_OTHER,
	PTM_COND_JUMP,
	PTM_JUMP,
	PTM_IND_JUMP,
	PTM_CALL,
	PTM_IND_CALL,
	PTM_RETURN,
	PTM_SYSCALL,
	PTM_FAR,
	PTM_CLASSES
};

enum ptm_block_flag {
	PTM_ENTRY = 1,  /* its first instruction is its function's first */
	PTM_START = 2,  /* the entry of a process image (_start) */
	PTM_MARKER = 4, /* its first instruction is a thunk marker's */
	PTM_ACCESS = 8, /* its first instruction is the marker's of accesses */
	PTM_OWN = 16,   /* in a function that does libtthread's own work, and whatever it calls for it */
	PTM_RESUMED = 32 /* behind a call, in code of which no functions are known: a jump there may be a return */
};

/* Functions that are none. */
enum ptm_function {
	PTM_UNKNOWN = 0,
	PTM_SIGNAL = 1,
	PTM_FOLDED = 2,
	PTM_FIRST_FUNCTION = 3
};

/* `addr` is where the block is in its image, as (image << 44 | offset): the same in every process. `ip` is where
 * it ran first; it tells blocks apart from others in code that was saved more than once at one address. */
struct ptm_block {
	uint64_t addr;
	uint64_t ip;
	uint32_t size;
	uint32_t last;         /* bytes from its first instruction to its last */
	uint32_t function;
	uint32_t instructions;
	uint8_t cls;           /* enum ptm_class */
	uint8_t flags;         /* enum ptm_block_flag */
	uint16_t zero;
	uint32_t zero2;
};

enum ptm_event_kind {
	PTM_GAP = 1,        /* nothing is known of what ran before: the stack starts anew */
	PTM_EXEC = 2,       /* the system call before it replaced the process image */
	PTM_SIGRETURN = 3,  /* the system call before it was rt_sigreturn */
	PTM_ASYNC = 4,      /* execution was interrupted at `from` and went on at `to` */
	PTM_MOVED = 5       /* the task ended in the system call before it, and another went on with its stack */
};

/* Something that happened right before block `seq`. Blocks are -1 where unknown. */
struct ptm_event {
	int64_t seq;
	uint64_t from;
	int32_t from_block;
	int32_t to_block;
	int32_t kind;
	int32_t zero;
};

/* A call stack: `parent`'s frames and one of `function`, called by `block`; UINT32_MAX is none. The counters are those of
 * the walk numbered `thread`; `spent` is in parts of a nanosecond (1 << 32 of them), the low word first. */
struct ptm_node {
	uint32_t parent;
	uint32_t function;
	uint32_t block;
	uint32_t depth;
	uint32_t thread;
	uint32_t below; /* tree.c's */
	int64_t calls;
	int64_t instructions;
	int64_t blocks;
	uint64_t spent[2]; /* a node is a line of the processor's cache */
};

/* A finished call; rows come in the order of their ends. */
struct ptm_call {
	int64_t call;
	int64_t parent;   /* -1 none */
	int64_t seq;
	int64_t seq_end;
	int64_t t_enter;
	int64_t t_exit;
	uint32_t node;
	uint32_t depth;
};

/* Innermost return addresses (packed as ptm_block.addr; 0 unknown), and how many of them the stack had; the rest is 0. */
struct ptm_returns {
	uint64_t returns[6];
	uint64_t known;
};

/* An execution of a marker block. `callers`: number of its innermost return addresses in the walk's `ptm_callers`. */
struct ptm_mark {
	int64_t seq;
	int32_t block;
	uint32_t callers;
};

enum ptm_visit_kind {
	PTM_VISIT_ACCESS = 1, /* a marker of an access */
	PTM_VISIT_RESUMED = 2, /* a signal handler returned: what was interrupted goes on here */
	PTM_VISIT_OWN = 3      /* a block of libtthread's own work */
};

/* An execution of such a block. */
struct ptm_visit {
	int64_t seq;
	int32_t block;
	int32_t kind;
};

struct ptm_program;
struct ptm_tree;
struct ptm_callers;
struct ptm_walk;

/* What is known of blocks' flags is not looked at yet: they may be set until the program is digested. */
int ptm_program_create(const struct ptm_block *blocks, size_t n_blocks, const int64_t *offsets,
		       const int32_t *values, size_t n_values, size_t n_paths, struct ptm_program **ret);
/* What walks ask of it; once. Flows may be scanned before, and meanwhile. -ENOMEM. */
int ptm_program_digest(struct ptm_program *program);
void ptm_program_destroy(struct ptm_program *program);
/* Batches of executed paths in which a path came first and last; 0 none. */
struct ptm_met {
	uint32_t first, last;
};
/* What there is in a batch of executed paths. Ordinals of a file that lies may be anything. */
struct ptm_survey {
	int64_t first, last;    /* ordinals of the first and the last path */
	int64_t end;            /* that behind the last one's last block */
	size_t calling;         /* paths in which there are system calls */
	size_t calls;           /* blocks that are such */
	int follow;             /* each path begins where the one before it ended */
};
/*
 * Go over `n` executed paths, at least one. `seqs`: their ordinals; NULL: they follow each other, the first one begins at
 * `first`. Those with system calls are put into `seq_out` and `path_out`, which have room for all. `met`, by path, may be
 * NULL: it is noted there that they are batch `batch`, not 0. -EINVAL for a path that does not exist, or none.
 */
int ptm_program_survey(const struct ptm_program *program, const int64_t *seqs, int64_t first, const int32_t *paths,
		       size_t n, uint32_t batch, struct ptm_met *met, int64_t *seq_out, int32_t *path_out,
		       struct ptm_survey *ret);
/* Ordinals and block numbers of the system-call blocks in executed paths, at most `room` of them; returns how many were
 * written, -EINVAL for a path that does not exist. */
int64_t ptm_program_scan(const struct ptm_program *program, const int64_t *seqs, const int32_t *paths, size_t n,
			 int64_t *seq_out, int32_t *block_out, size_t room);
/* Block ordinal after path `path` that begins at `seq`; or -EINVAL. */
int64_t ptm_program_after(const struct ptm_program *program, int64_t seq, int32_t path);

int ptm_tree_create(size_t max_nodes, uint32_t max_depth, struct ptm_tree **ret);
void ptm_tree_destroy(struct ptm_tree *tree);
size_t ptm_tree_size(const struct ptm_tree *tree);
const struct ptm_node *ptm_tree_nodes(const struct ptm_tree *tree);
/* The nodes of call stacks that were recorded: functions and the blocks that called them (UINT32_MAX unknown), innermost
 * first, those of stack i from offsets[i] on to offsets[i + 1]; nothing is counted for them. UINT32_MAX of an empty one. */
int ptm_tree_stacks(struct ptm_tree *tree, const uint32_t *functions, const uint32_t *blocks, const int64_t *offsets,
		    size_t n, uint32_t *ret);
/* Nodes with counters of the current thread, in the order they were met. */
const uint32_t *ptm_tree_touched(const struct ptm_tree *tree, size_t *ret);
/* What was counted for nodes of the current thread, as columns of `n`; of `spent` two words each. */
void ptm_tree_counters(const struct ptm_tree *tree, const uint32_t *numbers, size_t n, int64_t *calls,
		       int64_t *instructions, int64_t *blocks, uint64_t *spent);
/* Times (`spent` of ptm_tree_counters) as whole nanoseconds, each at most one away from its time, whose sums from the first
 * on are the rounded sums. `sum`, two words, zero at first, goes from part to part. */
void ptm_times(const uint64_t *spent, size_t n, uint64_t *sum, int64_t *times);
/* What nodes from `first` on to `n` are, 3 words each: parent, function, block. */
void ptm_tree_keys(const struct ptm_tree *tree, size_t first, size_t n, uint32_t *keys);
/* Put nodes of another tree, those from `first` on to `n` in their order there, into this one: `keys` are theirs,
 * `numbers` has what the nodes before are here, and gets what these are. -ENOSPC when the tree would have to fold, or the
 * other one did; -EINVAL for a parent that does not come before; -ENOMEM. */
int ptm_tree_adopt(struct ptm_tree *tree, const uint32_t *keys, size_t first, size_t n, uint32_t *numbers);

/* The program and `callers`, which marks' callers are numbered in (NULL: no marks are wanted), outlive the walk. */
int ptm_walk_create(const struct ptm_program *program, struct ptm_tree *tree, struct ptm_callers *callers, int want_calls,
		    struct ptm_walk **ret);
void ptm_walk_destroy(struct ptm_walk *walk);
/* Start a thread's walk: its counters are zero, its stack empty. */
void ptm_walk_begin(struct ptm_walk *walk);
/*
 * Walk executed paths. `anchors` are known moments (block ordinal, ns), sorted, at least one of them after the last
 * block given unless there are no more; `events` are sorted too and complete up to the last block given.
 * Returns the number of paths taken: fewer than `n` when output is waiting to be fetched, then call again.
 * `anchors_used` and `events_used` say how many of each are done with: give the others again next time.
 * -EINVAL: a path that does not exist; -EILSEQ: ordinals that go back; -ENOMEM.
 */
int64_t ptm_walk_feed(struct ptm_walk *walk, const int64_t *seqs, const int32_t *paths, size_t n,
		      const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors,
		      const struct ptm_event *events, size_t n_events, size_t *anchors_used, size_t *events_used);
/* The same of paths that follow each other without a hole, the first of which begins at `first`. */
int64_t ptm_walk_follow(struct ptm_walk *walk, int64_t first, const int32_t *paths, size_t n,
			const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors,
			const struct ptm_event *events, size_t n_events, size_t *anchors_used, size_t *events_used);
/* Ordinal of the block behind what was walked. */
int64_t ptm_walk_next(const struct ptm_walk *walk);
/* The thread ends: everything open is closed with the anchors that are left. */
int ptm_walk_end(struct ptm_walk *walk, const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors);
/* Output since the last fetch: valid until the next call on this walk. */
const struct ptm_call *ptm_walk_calls(struct ptm_walk *walk, size_t *ret);
const struct ptm_mark *ptm_walk_marks(struct ptm_walk *walk, size_t *ret);
const struct ptm_visit *ptm_walk_visits(struct ptm_walk *walk, size_t *ret);

/*
 * A thread may be walked in parts, each by a walk with a program in common and a tree of its own. A part other than the
 * first begins with a stack that is not known: what it takes for granted of it is looked at when it is joined.
 * ptm_walk_feed and ptm_walk_follow return -ECANCELED where a part cannot know how to go on: it is of no use then.
 */
/* Start a part: it begins at block `seq`, behind path `before`. -EINVAL: there is no such path; -ENOMEM. */
int ptm_walk_begin_within(struct ptm_walk *walk, int64_t seq, int32_t before);
/* Moments before where the walk is, at least one of them after it unless there are no more, are passed, and no time is
 * counted: once, before it is fed, and when a walk that was joined is to be fed itself. Returns how many were used. */
size_t ptm_walk_skip(struct ptm_walk *walk, const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors);
/* The thread goes on in another part. Feeding may go on, too. */
void ptm_walk_pause(struct ptm_walk *walk, const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors);
/* 1 when the walk, paused, is as `part`, which begins there, took for granted; 0 when not. */
int ptm_walk_fits(const struct ptm_walk *walk, const struct ptm_walk *part);
/* Numbers in `callers` of what `others` has of a part that fits. -ENOMEM. */
int ptm_walk_callers(const struct ptm_walk *walk, const struct ptm_callers *others, struct ptm_callers *callers,
		     uint32_t *numbers);
/* A part that fits and was paused or ended: what it counted is counted here, its stacks are in this walk's tree as if it
 * had met them itself (where it is full, they fold), and the walk is where the part is. -ENOSPC when stacks are too deep, or
 * the part's had to fold: nothing is counted, and the walk is where it was; -ENOMEM. */
int ptm_walk_join(struct ptm_walk *walk, const struct ptm_walk *part);
/* What is remembered of paths is given up. */
void ptm_walk_forget(struct ptm_walk *walk);

int ptm_callers_create(struct ptm_callers **ret);
void ptm_callers_destroy(struct ptm_callers *callers);
/* The distinct ones, numbered 0, 1, … as they are met first: valid until more are. */
const struct ptm_returns *ptm_callers_items(const struct ptm_callers *callers, size_t *ret);

/* Numbers keys, those from `begin` on, that are less than `limit`, as they are met first; negative ones are none. `count`
 * have a number already. `place` says which by key, -1 none; `first`, with room for all, where each was met first.
 * Returns how many there are now; -EINVAL. */
int64_t ptm_distinct(const int32_t *keys, size_t n, size_t begin, size_t count, int32_t *place, size_t limit,
		     int64_t *first);

/* Calls counted under their whole stack, and those folded because it was too deep, or there were too many. */
void ptm_walk_folds(const struct ptm_walk *walk, int64_t *whole, int64_t *deep, int64_t *many);

/* cdef: end */

#define PTM_NONE UINT32_MAX
#define PTM_RETURNS 6

#endif
