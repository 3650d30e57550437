/* SPDX-License-Identifier: MIT */
/*
 * Text of what was recorded and decoded: packets, instructions, blocks, events. This file is also the text cffi is
 * given, so it holds declarations only.
 *
 * Everything writes into a buffer of the caller's and stops, to be called again, when the next line may not fit.
 * Nothing here keeps global state; one object must not be used by two threads at a time. Whoever creates an object
 * destroys it; destroy accepts NULL. Errors are negative errno values.
 */
#ifndef DUMP_H
#define DUMP_H

#include <stddef.h>
#include <stdint.h>

/* Text being written: `data` has room for `capacity` bytes, which is at least DUMP_MIN_TEXT. */
struct dump_text {
    char *data;
    size_t size;
    size_t capacity;
};

enum { DUMP_MIN_TEXT = 65536 };

/* ---- packets ---- */

enum { DUMP_PACKET_KINDS = 40 };

struct dump_packets;

/* Packets of a trace, which is borrowed, that begin at `from` <= offset < `to`. Returns 0, -ENOMEM or -EINVAL. */
int dump_packets_create(const uint8_t *packets, uint64_t size, uint64_t from, uint64_t to, struct dump_packets **ret);
void dump_packets_destroy(struct dump_packets *dump);

/* A line a packet, and one where bytes could not be read. Returns 1: come again; 0: that was all. */
int dump_packets_next(struct dump_packets *dump, struct dump_text *text);

/* Bytes behind it, places that could not be read, and packets by kind (in the order of dump_packet_kind). */
struct dump_packets_progress {
    uint64_t offset;
    uint64_t bad;
    uint64_t counts[DUMP_PACKET_KINDS];
};

void dump_packets_progress(const struct dump_packets *dump, struct dump_packets_progress *ret);

/* The name of the kind with that number; NULL: there are no more. */
const char *dump_packet_kind(int kind);

/* ---- flow ---- */

/* Columns of the tables blocks and paths, and the files code is in; all borrowed. Names are NUL-free UTF-8. */
struct dump_tables {
    size_t block_count;
    const int32_t *image;
    const int64_t *offset;
    const uint64_t *ip;
    const uint64_t *last_ip;
    const int32_t *size;
    const int32_t *instructions;
    const uint8_t *mode;           /* 64, 32 or 16; NULL: all 64 */
    const int32_t *last;           /* name of the last instruction's class; negative: none, as in all that follow */
    const int32_t *function;       /* name of the function */
    const int64_t *function_offset;
    const int32_t *file;           /* name of the source file */
    const int32_t *line;
    size_t name_count;
    const int64_t *name_starts; /* name_count + 1 elements */
    const char *names;
    size_t path_count;
    const int32_t *starts; /* path_count + 1 elements */
    size_t list_count;
    const int32_t *list;
    size_t image_count;
    const char *const *images; /* paths of files; NULL where there is none */
};

/*
 * Lengths of the instructions of `n` blocks, block after block, as many as a block has in the table; zeros where its code
 * is not there, or not what was decoded. `lengths` has room for all. Returns 0, -ENOMEM, or -EINVAL for a block that is
 * not in the table, or has less than none.
 */
int dump_lengths(const struct dump_tables *tables, const int32_t *blocks, size_t n, uint8_t *lengths);

enum dump_form {
    DUMP_IPS,
    DUMP_BLOCKS,
    DUMP_INSTRUCTIONS,
    DUMP_INSTRUCTIONS_BYTES
};

struct dump_flow;

int dump_flow_create(const struct dump_tables *tables, enum dump_form form, struct dump_flow **ret);
void dump_flow_destroy(struct dump_flow *dump);

/* Lines to be put in before the block or row with that `seq`; sorted. */
struct dump_notes {
    size_t count;
    const int64_t *seq;
    const int64_t *starts; /* count + 1 elements */
    const char *text;
};

/* Executed paths of one thread, the moments known among them, and notes; blocks `from` <= seq < `to` are shown. */
struct dump_batch {
    size_t count;
    const int64_t *seq;
    const int32_t *path;
    int64_t from;
    int64_t to;
    size_t clock_count;
    const int64_t *clock_seq;
    const int64_t *clock_t; /* ns, shown as they are */
    struct dump_notes notes;
};

/* A thread begins: the time is not known any more. */
void dump_flow_thread(struct dump_flow *dump);

/* The batch to go on with, borrowed until it is done. */
void dump_flow_set(struct dump_flow *dump, const struct dump_batch *batch);

/*
 * Write on. Returns 1: the text is full, come again; 0: the batch is done; -ERANGE: an id points outside its table;
 * -EILSEQ: the code of a block is not what was decoded, or cannot be read (`bad_block` says which).
 */
int dump_flow_next(struct dump_flow *dump, struct dump_text *text);
int32_t dump_flow_bad_block(const struct dump_flow *dump);

/* Instructions (or blocks) written so far. */
uint64_t dump_flow_lines(const struct dump_flow *dump);

/* ---- events ---- */

/* Rows of pt_events. Where `valid_*` is 0 a column has no value. */
struct dump_events {
    size_t count;
    const int64_t *seq;
    const int64_t *t;
    const uint8_t *valid_t;
    const uint64_t *offset;
    const int32_t *kind; /* name */
    const uint64_t *ip;
    const uint8_t *valid_ip;
    const uint64_t *target;
    const uint8_t *valid_target;
    const int64_t *detail;
    const uint8_t *valid_detail;
    size_t name_count;
    const int64_t *name_starts;
    const char *names;
    struct dump_notes notes;
};

/* Write rows from `*row` on, and notes from `*note` on; both are moved. Returns 1: come again; 0: done; -ERANGE. */
int dump_events_next(const struct dump_events *events, size_t *row, size_t *note, struct dump_text *text);

#endif
