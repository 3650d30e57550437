/* SPDX-License-Identifier: MIT */
/*
 * What Python sees of the decoder's C half: this file is also the text cffi is given, so it holds declarations
 * only. Nothing here keeps global state: every function works on the objects it is handed, and one object must
 * not be used by two threads at a time. Whoever creates an object destroys it; destroy accepts NULL.
 *
 * Errors are negative errno values unless a function says that it returns libipt's (negative pt_error_code, put
 * into words by ptd_error_text).
 */
#ifndef PTD_API_H
#define PTD_API_H

#include <stddef.h>
#include <stdint.h>

/* ---- values in columns ---- */

/* What ends a block (schemas.BlockClass, in its order). */
enum ptd_class {
    PTD_OTHER,
    PTD_COND_JUMP,
    PTD_JUMP,
    PTD_IND_JUMP,
    PTD_CALL,
    PTD_IND_CALL,
    PTD_RETURN,
    PTD_SYSCALL,
    PTD_FAR
};

/* What the decoder met between two blocks. */
enum ptd_event {
    PTD_EV_ENABLED,
    PTD_EV_DISABLED,
    PTD_EV_ASYNC_DISABLED,
    PTD_EV_ASYNC_BRANCH,
    PTD_EV_PAGING,
    PTD_EV_ASYNC_PAGING,
    PTD_EV_OVERFLOW,
    PTD_EV_EXEC_MODE,
    PTD_EV_TSX,
    PTD_EV_STOP,
    PTD_EV_VMCS,
    PTD_EV_ASYNC_VMCS,
    PTD_EV_EXSTOP,
    PTD_EV_MWAIT,
    PTD_EV_PWRE,
    PTD_EV_PWRX,
    PTD_EV_PTWRITE,
    PTD_EV_TICK,
    PTD_EV_CBR,
    PTD_EV_MNT,
    /* of packets libipt does not know */
    PTD_EV_CFE,
    PTD_EV_PAGE_FAULT,
    PTD_EV_VMX_QUALIFICATION,
    PTD_EV_VMX_REASON,
    PTD_EV_EVD, /* of another type */
    PTD_EV_INTERRUPT_FLAG,
    PTD_EV_PEBS,
    PTD_EV_UNKNOWN
};

/* Kinds of gaps the decoder itself finds. */
enum ptd_gap {
    PTD_GAP_DECODE_ERROR,
    PTD_GAP_OVERFLOW,
    PTD_GAP_MISSING_IMAGE,
    PTD_GAP_TRUNCATED
};

/* Why a gap is there: libipt's pt_error_code (below 1000), or one of ours. */
enum ptd_reason {
    PTD_WHY_OVERFLOW = 1000,   /* an OVF packet: the processor dropped packets, how many is not known */
    PTD_WHY_NO_PSB_YET = 1001, /* bytes before the first PSB */
    PTD_WHY_NO_PSB = 1002,     /* no PSB at all */
    PTD_WHY_CUT_PACKET = 1003, /* the last packet is not complete */
    PTD_WHY_NO_PROGRESS = 1004, /* the code runs in circles without a branch while packets remain */
    PTD_WHY_STOP_MISSED = 1005, /* the code does not lead to where the next PSB says that execution stood */
    PTD_WHY_STOP_WHILE_OFF = 1006, /* tracing was off, and the next PSB says that execution stood somewhere */
    PTD_WHY_GUEST = 1007 /* a virtual machine's guest ran: its code is not in the recording */
};

/* ---- columns ---- */

/*
 * One batch of rows: plain arrays in Arrow's layout, `valid_*` are validity bitmaps (bit set: not null).
 * All of it is one allocation's worth of ownership: it lives until ptd_rows_destroy.
 */
struct ptd_rows {
    size_t flow_count;
    size_t flow_capacity;
    int32_t *flow_path;

    size_t clock_count;
    size_t clock_capacity;
    int64_t *clock_seq;
    uint64_t *clock_tsc;
    int32_t *clock_before; /* so many instructions before the block ran then already: 1, the branch that led to it */

    size_t event_count;
    size_t event_capacity;
    int64_t *event_seq;
    uint64_t *event_tsc;
    int8_t *event_kind;
    uint64_t *event_ip;
    uint64_t *event_target;
    uint64_t *event_offset;
    int64_t *event_detail;
    int8_t *event_size;
    uint8_t *event_update; /* 0 or 1 */
    uint32_t *event_lost_mtc;
    uint32_t *event_lost_cyc;
    uint8_t *valid_event_ip;
    uint8_t *valid_event_target;
    uint8_t *valid_event_detail;
    uint8_t *valid_event_size;

    size_t gap_count;
    size_t gap_capacity;
    int64_t *gap_seq;
    uint64_t *gap_tsc; /* 0: not known */
    int8_t *gap_kind;
    int64_t *gap_bytes;
    uint64_t *gap_offset;
    uint64_t *gap_ip;
    uint8_t *valid_gap_ip;
    int32_t *gap_reason;

    /*
     * Where the rows begin to belong to another thread: a piece is everything from here to the next piece. Rows are
     * counted in this batch, blocks, instructions and branches as in ptd_progress.
     */
    size_t piece_count;
    size_t piece_capacity;
    int32_t *piece_thread; /* -1: nobody's who is asked for */
    uint64_t *piece_tsc;   /* when it begins; pieces of a thread are put in the order of it */
    int64_t *piece_flow;
    int64_t *piece_clock;
    int64_t *piece_event;
    int64_t *piece_gap;
    int64_t *piece_seq;
    uint64_t *piece_instructions;
    uint64_t *piece_branches;
};

/* Room for `flow` paths and as much of the rest as they can need. NULL: out of memory. */
struct ptd_rows *ptd_rows_create(size_t flow);
void ptd_rows_destroy(struct ptd_rows *rows);

/* Forget the rows, to fill the batch again; nobody may look at them any more. */
void ptd_rows_clear(struct ptd_rows *rows);

/* ---- code ---- */

/* The sections of code a run executed, mapped once and shared by every trace. */
struct ptd_images;

struct ptd_images *ptd_images_create(void);
void ptd_images_destroy(struct ptd_images *images);

/*
 * Add `size` bytes at `offset` of the file at `path`, executed at `address`; `image` is the number rows call it by.
 * Returns the section's number (>= 0); the same section given twice is one, of the image given last. Errors are libipt's.
 */
int ptd_images_add(struct ptd_images *images, const char *path, int32_t image, uint64_t offset, uint64_t size,
                   uint64_t address);

/* Images made of sections so far; a space that differs little from one that is gone takes over that one's. */
uint64_t ptd_images_made(const struct ptd_images *images);

/* What one address space looks like during one slice of a trace: some of the sections. */
struct ptd_space;

/*
 * A space of `count` sections that do not overlap. libipt has it mapped only while it is used, and some that were.
 * Returns 0 or libipt's error.
 */
int ptd_space_create(struct ptd_images *images, const int *sections, size_t count, struct ptd_space **ret);
void ptd_space_destroy(struct ptd_space *space);

/*
 * Lengths of the instructions of `count` blocks, back to back in `lengths` (room for `capacity`). `modes` holds 64, 32
 * or 16 for each block. Returns the number of lengths, -ENOBUFS when they do not fit, -EILSEQ for a block that is
 * not code there.
 */
int64_t ptd_space_lengths(struct ptd_space *space, size_t count, const uint64_t *ips, const int32_t *instructions,
                          const uint8_t *modes, uint8_t *lengths, size_t capacity);

/* ---- blocks and paths ---- */

/* The blocks of a run, the legs made of them, and the paths made of legs. */
struct ptd_tables;

/* Tables decoders write to: blocks are there once, legs and paths once a slice. */
struct ptd_tables *ptd_tables_create(void);

/* Tables results are put together in: all is there once. */
struct ptd_tables *ptd_tables_create_distinct(void);
void ptd_tables_destroy(struct ptd_tables *tables);

/* Forget all of it; memory stays for what comes. Not of distinct tables. */
void ptd_tables_clear(struct ptd_tables *tables);

/* Columns of the distinct blocks; they move when more blocks are added. */
struct ptd_blocks_view {
    size_t count;
    const int32_t *image;
    const int64_t *offset;
    const uint64_t *ip;
    const uint64_t *last_ip;
    const int32_t *size;
    const int32_t *instructions;
    const int8_t *last;
    const uint8_t *mode;
};

/* Columns of legs (their items are blocks) or paths (legs): `starts` has one element more than there are lists. */
struct ptd_paths_view {
    size_t count;
    size_t item_count;
    const int32_t *starts;
    const int32_t *items;
    const int32_t *length; /* blocks */
    const int32_t *instructions;
};

void ptd_tables_blocks(const struct ptd_tables *tables, struct ptd_blocks_view *ret);
void ptd_tables_legs(const struct ptd_tables *tables, struct ptd_paths_view *ret);
void ptd_tables_paths(const struct ptd_tables *tables, struct ptd_paths_view *ret);

/* The first block of a path that is there. */
int32_t ptd_tables_first_block_of(const struct ptd_tables *tables, int32_t path);

/*
 * The blocks of the paths from `begin` to `end`, back to back in `blocks` (as many as their lengths come to);
 * `starts` has one element more than those paths. Returns how many blocks, -ERANGE or -EOVERFLOW.
 */
int64_t ptd_tables_expand(const struct ptd_tables *tables, size_t begin, size_t end, int32_t *ret_starts,
                          int32_t *ret_blocks);

/* ---- results put together ---- */

/*
 * Take over the blocks, legs and paths of a task, whose columns are given: what is not there yet is added in the order
 * of the task's numbers. The maps (as long as the columns) become the numbers in `tables`, which must be distinct.
 * Returns 0, -ERANGE for columns that contradict themselves, -ENOMEM, -EOVERFLOW or -EINVAL.
 */
int ptd_tables_take(struct ptd_tables *tables, const struct ptd_blocks_view *blocks, const struct ptd_paths_view *legs,
                    const struct ptd_paths_view *paths, int32_t *block_map, int32_t *leg_map, int32_t *path_map);

/* A task's path numbers in the numbers of the whole, and how many blocks its paths have. */
struct ptd_renumbering {
    size_t count;
    const int32_t *map;
    const int32_t *length;
};

/*
 * Renumber `count` rows of a task's flow, the first of which has `seq` blocks before it.
 * Returns the blocks up to their end, or -ERANGE for a path there is none of.
 */
int64_t ptd_renumber_flow(const struct ptd_renumbering *numbers, const int32_t *flow, size_t count, int64_t seq,
                          int32_t *ret_path, int64_t *ret_seq);

/* ---- flow ---- */

/* What an address range of the processor does: the values of IA32_RTIT_CTL.ADDRn_CFG. */
enum ptd_filter_kind {
    PTD_FILTER_NONE,
    PTD_FILTER_FILTER, /* tracing only inside */
    PTD_FILTER_STOP    /* tracing stops there */
};

/* A processor's identity and timing, as libipt wants them; all zero: packets of the architecture, without errata. */
struct ptd_cpu {
    uint8_t intel;
    uint16_t family;
    uint8_t model;
    uint8_t stepping;
    uint8_t mtc_freq;
    uint8_t nom_freq;
    uint32_t cpuid_0x15_eax;
    uint32_t cpuid_0x15_ebx;
    uint8_t ticks; /* an event at every update of the time */
    uint8_t filter_kind[4];
    uint64_t filter_first[4];
    uint64_t filter_last[4]; /* included */
    uint8_t exact_time; /* hold packets and flow side by side: the moment of each branch, as perf tells it */
};

/*
 * Packets libipt does not know, overwritten in place by such as it knows: what they were is said to the decoder of the
 * same bytes. `ret` becomes NULL when there are none. Returns 0 or -ENOMEM.
 */
struct ptd_stand_ins;

int ptd_stand_ins_create(uint8_t *packets, uint64_t size, struct ptd_stand_ins **ret);
void ptd_stand_ins_destroy(struct ptd_stand_ins *stand_ins);

/* When a switch takes place, where a slice has a switch_ip. */
enum ptd_switch_when {
    PTD_SWITCH_AT_TIME,
    PTD_SWITCH_TOLD, /* the kernel wrote of it before: at switch_ip */
    PTD_SWITCH_DONE  /* the kernel wrote of it behind that: it has taken place */
};

/* From a time on what runs is another thread's, or in another space. */
struct ptd_switch {
    uint64_t tsc;
    struct ptd_space *space;
    int32_t thread; /* -1: nobody's who is asked for */
    uint8_t when;   /* enum ptd_switch_when */
};

/* Which of a slice's switches is in force somewhere in it, see handover.h; switches are numbered from 1, 0: none. */
struct ptd_handover {
    uint64_t taken;   /* switches that have come */
    uint64_t running; /* the one in force */
    uint64_t pending; /* one that was told of, and has not taken place */
    uint8_t known;    /* all this is said */
    uint8_t state;    /* enum ptd_tracing */
    int8_t owed;      /* 1: a switch was made, its place comes later; -1: a place was come to, its record comes later */
};

/*
 * What is known of time somewhere in a trace, in TSC ticks; all zero: nothing. It decides what is told behind there,
 * up to where the packets say it anew: a decoder that begins in the middle is given it.
 */
struct ptd_timing {
    uint64_t time;       /* of the packets read last; 0: not known */
    uint64_t tsc;        /* of the last TSC packet */
    uint64_t ctc_time;   /* TSC at the crystal clock tick the deltas count from */
    uint64_t ctc_delta;
    uint64_t cycle_time; /* TSC at which cycles count from 0; 0: not known */
    uint64_t cycles;
    double ticks_per_cycle; /* measured; 0: not */
    uint64_t now;        /* of the instruction executed last; 0: not known */
    uint64_t latest;     /* of any instruction: estimates may go back, switches that were made stay */
    uint64_t since;      /* instructions executed since a timing packet */
    uint32_t cbr;
    uint8_t last_mtc;
    uint8_t have_tma;
    uint8_t mtc_incomplete; /* the TMA did not hold all bits of the next MTC */
    uint8_t after_cyc;   /* the last packet was a CYC */
    struct ptd_handover handover; /* behind the instruction executed last */
};

/*
 * Where a slice of a trace lies, and what its thread's flow had come to before it. When it ends at a PSB whose PSB+
 * says where execution stood, that is `stop_ip`: decoding stops before the first instruction there, at which the
 * next slice begins.
 */
struct ptd_slice {
    const uint8_t *packets;
    uint64_t size;
    uint64_t offset; /* of its first byte in the trace */
    int64_t seq;
    uint64_t tsc;
    uint8_t has_stop;
    uint64_t stop_ip;
    struct ptd_timing timing; /* at its first byte, where times are told by branch */
    const struct ptd_stand_ins *stand_ins; /* in its packets; NULL: none */
    const struct ptd_switch *switches; /* by time; the first holds from the beginning. Needs exact_time. */
    size_t switch_count;
    uint64_t switch_ip; /* where the kernel goes from one thread to the next; 0: switches take place at their time */
    uint64_t tell_ip;   /* where it writes of that before; 0: not known */
    uint8_t is_lead;    /* all that is asked for is what is known behind it */
};

/* How far a decoder is. */
struct ptd_progress {
    uint64_t offset; /* bytes of the slice behind it */
    int64_t seq;
    uint64_t tsc;
    uint64_t instructions;
    uint64_t branches;
    uint64_t lost; /* bytes of the slice not decoded */
    int32_t first_block; /* first block of the slice, -1 none */
    uint8_t off;         /* at the end of the slice: its packets turned tracing off, and off_ip is known */
    uint64_t off_ip;     /* where execution would have gone on; where it is turned on again, it resumes */
};

struct ptd_decoder;

/*
 * A decoder of one slice. It borrows everything it is given but `cpu` and `slice` themselves; the packets must stay. One
 * decoder at a time uses the tables. Returns 0, -ENOMEM, -EINVAL, or -EIO: code cannot be mapped any more.
 */
int ptd_decoder_create(struct ptd_tables *tables, struct ptd_space *space, const struct ptd_cpu *cpu,
                       const struct ptd_slice *slice, struct ptd_decoder **ret);
void ptd_decoder_destroy(struct ptd_decoder *decoder);

/* Decode until the slice ends (0) or a column is full (1: come again with new rows); -ENOMEM, -EOVERFLOW, -EIO. */
int ptd_decoder_step(struct ptd_decoder *decoder, struct ptd_rows *rows);
void ptd_decoder_progress(const struct ptd_decoder *decoder, struct ptd_progress *ret);

/* What a decoder that is through with its slice knows of time behind it; nothing unless it tells times by branch. */
void ptd_decoder_timing(struct ptd_decoder *decoder, struct ptd_timing *ret);

/*
 * Read packets for their time only; `timing` is that before the first of them and becomes that behind them, but for
 * what only instructions tell. Where they are malformed it goes on at the next PSB. Returns 0, -ENOMEM or -EINVAL.
 */
int ptd_timing_pass(const struct ptd_cpu *cpu, const uint8_t *packets, uint64_t size,
                    const struct ptd_stand_ins *stand_ins, struct ptd_timing *timing);

/*
 * The path decoder: the same for the same slice as ptd_decoder, several times faster where code repeats. One of the
 * same images is used at a time: step returns -EBUSY for one that is not the youngest.
 */
struct ptd_cached;

int ptd_cached_create(struct ptd_tables *tables, struct ptd_space *space, const struct ptd_cpu *cpu,
                      const struct ptd_slice *slice, struct ptd_cached **ret);
void ptd_cached_destroy(struct ptd_cached *cached);
int ptd_cached_step(struct ptd_cached *cached, struct ptd_rows *rows);
void ptd_cached_progress(const struct ptd_cached *cached, struct ptd_progress *ret);

/* Bytes of the slice given to libipt so far, because something in them was out of the ordinary. */
uint64_t ptd_cached_handed(const struct ptd_cached *cached);

/* ---- PSBs ---- */

/* Offset of the first PSB that begins at `from` or later; UINT64_MAX: none. */
uint64_t ptd_psb_after(const uint8_t *packets, uint64_t size, uint64_t from);

/*
 * Where execution stood at the PSB at `psb`: 1 and the address in its PSB+'s FUP; 0 when there is none (tracing was
 * off, or was only turned on by the packets right behind it); -1 when the PSB+ is malformed or not complete.
 */
int ptd_psb_ip(const uint8_t *packets, uint64_t size, uint64_t psb, uint64_t *ip);

/* 1 when the PSB+ at `psb` is there up to its PSBEND, else 0: one an OVF cut short may not say all that a decoder needs. */
int ptd_psb_whole(const uint8_t *packets, uint64_t size, uint64_t psb);

/* ---- packets ---- */

enum {
    PTD_PACKET_TSX = 30, /* MODE.TSX, which libipt has as one kind with MODE.Exec */
    PTD_PACKET_KINDS = 32
};

/* What a trace's packets come to; kinds are numbered as in libipt's enum pt_packet_type. */
struct ptd_packet_counts {
    uint64_t packets;
    uint64_t by_kind[32];
    uint64_t errors;     /* packets that could not be read */
    uint64_t first_sync; /* offset of the first PSB, UINT64_MAX: none */
    uint64_t tnt_bits;
    uint64_t tnt_taken;
    uint64_t cyc_sum;
    uint64_t tsc_first;
    uint64_t tsc_last;
};

/* Count the packets of a trace. Returns 0 or -ENOMEM. */
int ptd_packets_count(const uint8_t *packets, uint64_t size, struct ptd_packet_counts *ret);

/* The usual short name of a kind, as ptdump says it; NULL for a number that is none. */
const char *ptd_packet_name(int kind);

/* ---- helpers ---- */

/* libipt's text of a (positive) error code; never NULL. */
const char *ptd_error_text(int code);

/* A checksum of so many bytes: any bit changed, and whatever else happens to files, changes it almost surely. */
uint64_t ptd_checksum(const uint8_t *bytes, size_t count);

/* ns of `count` TSC values: t0 + floor((tsc - tsc0) * span_ns / span_tsc), exact; t0 when span_tsc is not positive. */
void ptd_to_ns(const uint64_t *tsc, size_t count, uint64_t tsc0, int64_t t0, uint64_t span_tsc, int64_t span_ns,
               int64_t *ret);

/* What is needed to turn paths back into instructions: the paths' and blocks' columns and the blocks' lengths. */
struct ptd_expansion {
    size_t path_count;
    const int32_t *starts; /* path_count + 1 elements */
    size_t list_count;
    const int32_t *blocks; /* list_count elements */
    size_t block_count;
    const uint64_t *ips;
    const int32_t *instructions;
    const int64_t *length_starts; /* where a block's lengths begin in `lengths` */
    size_t length_count;
    const uint8_t *lengths;
};

/*
 * Expand `count` executed paths to instructions and carry the order-sensitive hash
 * h = (h ^ ip) * 0x9E3779B97F4A7C15; h ^= h >> 29 on over their addresses.
 * Returns the number of instructions, -ERANGE when an id points outside its table.
 */
int64_t ptd_hash_flow(const struct ptd_expansion *tables, const int32_t *flow, size_t count, uint64_t *hash);

/* ---- source lines ---- */

/* The sections line tables live in; a missing one has size 0. */
struct ptd_line_sections {
    const uint8_t *line; /* .debug_line */
    size_t line_size;
    const uint8_t *strings; /* .debug_str */
    size_t strings_size;
    const uint8_t *line_strings; /* .debug_line_str */
    size_t line_strings_size;
    const uint8_t *shared_strings; /* .debug_str of the file that .gnu_debugaltlink names */
    size_t shared_strings_size;
    const uint8_t *info; /* .debug_info and .debug_abbrev: only for the folders of DWARF 2 to 4 */
    size_t info_size;
    const uint8_t *abbrev;
    size_t abbrev_size;
    const uint64_t *wanted; /* sorted addresses: keep only what they need to be found; NULL: keep all rows */
    size_t wanted_count;
    uint64_t lowest;  /* of the code: what begins below it is of code the linker dropped */
    size_t max_rows;  /* keep no more rows than this */
    size_t max_names; /* and no more bytes of file names */
};

/* Rows of all line tables in file order; `file` indexes `file_starts`, -1 unknown. */
struct ptd_lines {
    size_t count;
    uint64_t *address;
    int32_t *file;
    int32_t *line;
    uint8_t *end; /* the row ends a sequence: its address is the first byte after it */
    size_t file_count;
    size_t *file_starts; /* of NUL-terminated paths in `names` */
    char *names;
    size_t names_size;
    size_t bad_units; /* tables that were malformed and given up where they were */
    uint8_t full;     /* max_rows was reached */
    uint8_t nameless; /* max_names was reached: further files have no name */
    uint8_t wants_strings; /* a file is named in .debug_str, which was not given */
};

/* Read DWARF 2 to 5 line tables. Returns 0 or -ENOMEM; whatever is malformed is counted, not an error. */
int ptd_lines_read(const struct ptd_line_sections *sections, struct ptd_lines **ret);
void ptd_lines_destroy(struct ptd_lines *lines);

#endif
