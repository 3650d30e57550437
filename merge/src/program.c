/* SPDX-License-Identifier: MIT */
/*
 * Blocks and paths. Borrows the caller's arrays, owns what it makes of them. Block numbers in paths are checked once,
 * at creation; path numbers whenever they come in.
 */
#define _GNU_SOURCE /* madvise */
#include "program.h"
#include "pages.h"

#include <errno.h>
#include <stdlib.h>

bool program_falls_through(const struct ptm_block *from, const struct ptm_block *to)
{
	return from->addr + from->size == to->addr || from->ip + from->size == to->ip;
}

bool program_plain_step(const struct ptm_block *from, const struct ptm_block *to)
{
	const struct path begin = { .function = to->function, .addr = to->addr, .ip = to->ip,
				    .resumed = to->flags & PTM_RESUMED };

	return program_plain_begin(from, &begin);
}

static bool plain_after(const struct ptm_block *before, const struct ptm_block *block)
{
	return !(block->flags & (PTM_MARKER | PTM_ACCESS | PTM_OWN)) && (!before || program_plain_step(before, block));
}

/* `block`, in front of a place of the same frame; where that is too much to count, alone. */
static struct place in_front(const struct ptm_block *block, struct place rest)
{
	if (rest.plain == UINT16_MAX || block->instructions > (uint32_t)(UINT16_MAX - rest.instructions))
		rest = (struct place){ 0, 0 };
	if (block->instructions > UINT16_MAX)
		return rest;
	return (struct place){ .plain = rest.plain + 1, .instructions = (uint16_t)(rest.instructions + block->instructions) };
}

/* How far one can go from each block of a path, from its end to its begin. */
static void measure(struct ptm_program *program, int64_t begin, int64_t end)
{
	for (int64_t i = end - 2; i >= begin; i--) {
		const struct ptm_block *next = &program->blocks[program->values[i + 1]];

		if (plain_after(&program->blocks[program->values[i]], next))
			program->places[i] = in_front(next, program->places[i + 1]);
	}
}

/* The little that is known of a path without its blocks' flags. -EINVAL: it is none. */
static int make_brief(struct ptm_program *program, size_t index)
{
	const int64_t begin = program->offsets[index], end = program->offsets[index + 1];
	uint64_t instructions = 0;
	uint32_t syscalls = 0;

	if (begin < 0 || end < begin || (uint64_t)end > program->n_values || end - begin > INT32_MAX)
		return -EINVAL;
	for (int64_t i = begin; i < end; i++) {
		const int32_t number = program->values[i];

		if (number < 0 || (size_t)number >= program->n_blocks || program->blocks[number].cls >= PTM_CLASSES)
			return -EINVAL;
		instructions += program->blocks[number].instructions;
		syscalls += program->blocks[number].cls == PTM_SYSCALL;
	}
	if (instructions > UINT32_MAX)
		return -EINVAL;
	program->briefs[index] = (struct brief){ .length = (uint32_t)(end - begin), .syscalls = syscalls };
	return 0;
}

int ptm_program_create(const struct ptm_block *blocks, size_t n_blocks, const int64_t *offsets,
		       const int32_t *values, size_t n_values, size_t n_paths, struct ptm_program **ret)
{
	struct ptm_program *program = calloc(1, sizeof(*program));

	if (!program)
		return -ENOMEM;
	*program = (struct ptm_program){
		.blocks = blocks, .n_blocks = n_blocks, .offsets = offsets, .values = values, .n_values = n_values,
		.n_paths = n_paths, .briefs = malloc((n_paths ? n_paths : 1) * sizeof(*program->briefs)),
	};
	int error = program->briefs ? 0 : -ENOMEM;

	for (size_t i = 0; !error && i < n_paths; i++)
		error = make_brief(program, i);
	if (error) {
		ptm_program_destroy(program);
		return error;
	}
	*ret = program;
	return 0;
}

static void digest(struct ptm_program *program, size_t index)
{
	const int64_t begin = program->offsets[index], end = program->offsets[index + 1];
	struct path *path = &program->paths[index];
	const struct ptm_block *before = NULL;

	*path = (struct path){ .first = begin, .length = (uint32_t)(end - begin), .plain = begin < end };
	for (int64_t i = begin; i < end; i++) {
		const struct ptm_block *block = &program->blocks[program->values[i]];

		path->plain = path->plain && plain_after(before, block);
		path->instructions += block->instructions;
		before = block;
	}
	measure(program, begin, end);
	if (begin < end) {
		const struct ptm_block *block = &program->blocks[program->values[begin]];

		path->function = block->function;
		path->addr = block->addr;
		path->ip = block->ip;
		path->resumed = block->flags & PTM_RESUMED;
		path->last = (uint32_t)program->values[end - 1];
	}
}

int ptm_program_digest(struct ptm_program *program)
{
	const size_t n_paths = program->n_paths, n_values = program->n_values;

	program->paths = aligned_alloc(64, (n_paths ? n_paths : 1) * sizeof(*program->paths));
	program->places = calloc(n_values ? n_values : 1, sizeof(*program->places));
	if (!program->paths || !program->places)
		return -ENOMEM;
	pages_hint(program->paths, n_paths * sizeof(*program->paths));
	pages_hint(program->places, n_values * sizeof(*program->places));
	for (size_t i = 0; i < n_paths; i++)
		digest(program, i);
	return 0;
}

void ptm_program_destroy(struct ptm_program *program)
{
	if (!program)
		return;
	free(program->paths);
	free(program->places);
	free(program->briefs);
	free(program);
}

static void meet(struct ptm_met *met, uint32_t batch)
{
	if (!met->first)
		met->first = batch;
	met->last = batch;
}

int ptm_program_survey(const struct ptm_program *program, const int64_t *seqs, int64_t first, const int32_t *paths,
		       size_t n, uint32_t batch, struct ptm_met *met, int64_t *seq_out, int32_t *path_out,
		       struct ptm_survey *ret)
{
	/* unsigned: ordinals of a file that lies may be anything */
	uint64_t seq = 0, end = (uint64_t)(seqs && n ? seqs[0] : first);
	struct ptm_survey found = { .first = (int64_t)end, .follow = 1 };

	if (!n)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		if (paths[i] < 0 || (size_t)paths[i] >= program->n_paths)
			return -EINVAL;
		const struct brief *brief = &program->briefs[paths[i]];

		seq = seqs ? (uint64_t)seqs[i] : end;
		found.follow &= seq == end;
		end = seq + brief->length;
		if (met)
			meet(&met[paths[i]], batch);
		if (!brief->syscalls)
			continue;
		seq_out[found.calling] = (int64_t)seq;
		path_out[found.calling++] = paths[i];
		found.calls += brief->syscalls;
	}
	found.last = (int64_t)seq;
	found.end = (int64_t)end;
	*ret = found;
	return 0;
}

int64_t ptm_program_scan(const struct ptm_program *program, const int64_t *seqs, const int32_t *paths, size_t n,
			 int64_t *seq_out, int32_t *block_out, size_t room)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		if (paths[i] < 0 || (size_t)paths[i] >= program->n_paths)
			return -EINVAL;
		if (!program->briefs[paths[i]].syscalls)
			continue;
		const int32_t *blocks = &program->values[program->offsets[paths[i]]];

		for (uint32_t j = 0; j < program->briefs[paths[i]].length && count < room; j++) {
			const int32_t number = blocks[j];

			if (program->blocks[number].cls != PTM_SYSCALL)
				continue;
			seq_out[count] = (int64_t)((uint64_t)seqs[i] + j);
			block_out[count] = number;
			count++;
		}
	}
	return (int64_t)count;
}

int64_t ptm_program_after(const struct ptm_program *program, int64_t seq, int32_t path)
{
	if (path < 0 || (size_t)path >= program->n_paths)
		return -EINVAL;
	return (int64_t)((uint64_t)seq + program->briefs[path].length);
}
