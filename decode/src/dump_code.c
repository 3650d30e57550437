/* SPDX-License-Identifier: MIT */
/*
 * Blocks to instructions.
 *
 * The code of a block is read from its image's file when it is met first. Zydis says how long its instructions are;
 * where that does not come out at the block's last instruction, or Zydis knows one of them not, libipt's own decoder
 * is asked, which the block came from. Lengths are kept for good, one byte an instruction of each distinct block;
 * texts are kept in a store of fixed size, and all forgotten when it is full. Owns its memory; not thread-safe.
 */
#define _GNU_SOURCE /* O_NOFOLLOW */
#include "dump_code.h"
#include "walker.h"

#include <Zydis/Zydis.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_INSTRUCTION = 15,
    MAX_BLOCK = 1 << 20, /* bytes; blocks end at branches, and decoding bounds their instructions */
    MAX_OPEN = 200,      /* image files open at a time */
    CHUNK = 1 << 20,     /* lengths are allocated by the megabyte */
    LINE = 256           /* room for one instruction's text: Zydis' longest are below 130 */
};

static const size_t TEXT_STORE = (size_t)64 << 20;

struct chunk {
    struct chunk *next;
    uint8_t lengths[];
};

/* A block's bytes, for libipt to read from. */
struct window {
    uint64_t ip;
    size_t size;
    const uint8_t *bytes;
};

struct dump_code {
    const struct dump_tables *tables;
    const uint8_t **lengths; /* by block */
    uint8_t *bad;            /* by block: it is known to be unreadable */
    struct chunk *chunks;
    size_t chunk_used;
    int *files; /* by image: descriptor, -1 not open */
    size_t open_files;
    uint8_t *bytes; /* of the block in hand */
    size_t bytes_size;
    struct window window;
    struct pt_image *image;
    struct ptd_walker *walker;
    char *store; /* texts */
    size_t store_used;
    uint32_t *texts; /* by block: where its text begins in the store, plus one */
    ZydisFormatter formatter;
};

/* ---- bytes ---- */

static void close_files(struct dump_code *code)
{
    for (size_t i = 0; i < code->tables->image_count; i++)
        if (code->files[i] >= 0) {
            close(code->files[i]);
            code->files[i] = -1;
        }
    code->open_files = 0;
}

static int file_of(struct dump_code *code, int32_t image)
{
    const struct dump_tables *tables = code->tables;
    if (image < 0 || (size_t)image >= tables->image_count || !tables->images[image])
        return -1;
    if (code->files[image] >= 0)
        return code->files[image];
    if (code->open_files >= MAX_OPEN)
        close_files(code);
    int file = open(tables->images[image], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat status;
    if (file >= 0 && (fstat(file, &status) < 0 || !S_ISREG(status.st_mode))) {
        close(file);
        file = -1;
    }
    code->files[image] = file;
    code->open_files += file >= 0;
    return file;
}

/* Bytes from the first to the last instruction of a block, which is what all but the last length must come to. */
static uint64_t span_of(const struct dump_tables *tables, int32_t block)
{
    return tables->last_ip[block] - tables->ip[block];
}

/* The last instruction's length as it was decoded, 0 when it is not known. */
static uint8_t last_length(const struct dump_tables *tables, int32_t block)
{
    uint64_t rest = (uint64_t)tables->size[block] - span_of(tables, block);
    return rest <= MAX_INSTRUCTION ? (uint8_t)rest : 0;
}

/*
 * The block's bytes into `code->bytes`, and some after it. Its last instruction may end in another image, where two
 * images meet: as many as there are then.
 */
static bool read_bytes(struct dump_code *code, int32_t block)
{
    const struct dump_tables *tables = code->tables;
    int32_t size = tables->size[block];
    int file = file_of(code, tables->image[block]);
    if (file < 0 || size < 0 || size > MAX_BLOCK || tables->offset[block] < 0)
        return false;
    ssize_t got = pread(file, code->bytes, (size_t)size + MAX_INSTRUCTION, tables->offset[block]);
    if (got <= 0 || (uint64_t)got <= span_of(tables, block))
        return false;
    code->bytes_size = (size_t)got;
    code->window = (struct window){tables->ip[block], (size_t)got, code->bytes};
    return true;
}

static int read_window(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context)
{
    (void)asid;
    const struct window *window = context;
    uint64_t at = ip - window->ip;
    if (at >= window->size)
        return -pte_nomap;
    if (size > window->size - at)
        size = window->size - (size_t)at;
    memcpy(buffer, window->bytes + at, size);
    return (int)size;
}

/* ---- lengths ---- */

static uint8_t mode_of(const struct dump_tables *tables, int32_t block)
{
    return tables->mode ? tables->mode[block] : 64;
}

static bool decoder_init(ZydisDecoder *decoder, uint8_t mode)
{
    if (mode == 32)
        return ZYAN_SUCCESS(ZydisDecoderInit(decoder, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32));
    if (mode == 16)
        return ZYAN_SUCCESS(ZydisDecoderInit(decoder, ZYDIS_MACHINE_MODE_LEGACY_16, ZYDIS_STACK_WIDTH_16));
    return ZYAN_SUCCESS(ZydisDecoderInit(decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64));
}

static bool zydis_lengths(struct dump_code *code, int32_t block, uint8_t *lengths)
{
    ZydisDecoder decoder;
    if (!decoder_init(&decoder, mode_of(code->tables, block)) ||
        !ZYAN_SUCCESS(ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MINIMAL, ZYAN_TRUE)))
        return false;
    int32_t count = code->tables->instructions[block];
    uint8_t last = last_length(code->tables, block);
    size_t at = 0;
    for (int32_t i = 0; i < count; i++) {
        ZydisDecodedInstruction instruction;
        if (i == count - 1 && at != span_of(code->tables, block))
            return false;
        if (i == count - 1 && last) { /* it is known, from more than this image's bytes */
            lengths[i] = last;
            return true;
        }
        if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, NULL, code->bytes + at, code->bytes_size - at,
                                                        &instruction)))
            return false;
        lengths[i] = instruction.length;
        at += instruction.length;
    }
    return true;
}

static bool libipt_lengths(struct dump_code *code, int32_t block, uint8_t *lengths)
{
    const struct dump_tables *tables = code->tables;
    uint8_t mode = mode_of(tables, block);
    uint32_t count = (uint32_t)tables->instructions[block];
    struct ptd_walk walk;
    /* the last one needs no length to be found; it is not decodable everywhere */
    int status = ptd_walker_walk(code->walker, tables->ip[block],
                                 mode == 32 ? ptem_32bit : mode == 16 ? ptem_16bit : ptem_64bit, count, lengths, &walk);
    uint64_t span = 0;
    for (uint32_t i = 0; i + 1 < count && i < walk.instructions; i++)
        span += lengths[i];
    if (walk.instructions + 1 < count || span != span_of(tables, block))
        return false;
    uint8_t last = last_length(tables, block);
    if (last || walk.instructions < count || status < 0)
        lengths[count - 1] = last ? last : 1;
    return true;
}

static uint8_t *room_for_lengths(struct dump_code *code, size_t count)
{
    if (!code->chunks || CHUNK - code->chunk_used < count) {
        struct chunk *chunk = malloc(sizeof *chunk + CHUNK);
        if (!chunk)
            return NULL;
        chunk->next = code->chunks;
        code->chunks = chunk;
        code->chunk_used = 0;
    }
    return code->chunks->lengths + code->chunk_used;
}

const uint8_t *dump_code_lengths(struct dump_code *code, int32_t block)
{
    if (code->lengths[block])
        return code->lengths[block];
    const struct dump_tables *tables = code->tables;
    int32_t count = tables->instructions[block];
    if (code->bad[block] || count <= 0 || count > MAX_BLOCK)
        return NULL;
    uint8_t *lengths = room_for_lengths(code, (size_t)count);
    if (!lengths || !read_bytes(code, block) ||
        (!zydis_lengths(code, block, lengths) && !libipt_lengths(code, block, lengths))) {
        code->bad[block] = 1;
        return NULL;
    }
    code->chunk_used += (size_t)count;
    code->lengths[block] = lengths;
    return lengths;
}

/* ---- text ---- */

static char *put_hex_bytes(char *at, const uint8_t *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        *at++ = digits[bytes[i] >> 4];
        *at++ = digits[bytes[i] & 15];
        *at++ = ' ';
    }
    for (size_t i = size; i < 8; i++) /* as objdump does: short ones in a column */
        for (int j = 0; j < 3; j++)
            *at++ = ' ';
    *at++ = ' ';
    return at;
}

static char *put_instruction(struct dump_code *code, const ZydisDecoder *decoder, char *at, uint64_t ip,
                             const uint8_t *bytes, size_t size, bool with_bytes)
{
    ZydisDecodedInstruction instruction;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    if (with_bytes)
        at = put_hex_bytes(at, bytes, size);
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(decoder, bytes, size, &instruction, operands)) ||
        instruction.length != size || /* its end is in another image: what follows here did not run */
        !ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&code->formatter, &instruction, operands,
                                                      instruction.operand_count_visible, at, LINE / 2, ip, NULL)))
        memcpy(at, "(bad)", 6);
    return at + strlen(at) + 1;
}

const char *dump_code_text(struct dump_code *code, int32_t block, int bytes)
{
    if (code->texts[block])
        return code->store + code->texts[block] - 1;
    const uint8_t *lengths = dump_code_lengths(code, block);
    if (!lengths || !read_bytes(code, block))
        return NULL;
    int32_t count = code->tables->instructions[block];
    size_t needed = (size_t)count * LINE;
    if (needed > TEXT_STORE)
        return NULL;
    if (TEXT_STORE - code->store_used < needed) {
        memset(code->texts, 0, code->tables->block_count * sizeof *code->texts);
        code->store_used = 0;
    }
    ZydisDecoder decoder;
    if (!decoder_init(&decoder, mode_of(code->tables, block)))
        return NULL;
    char *start = code->store + code->store_used;
    char *at = start;
    size_t offset = 0;
    for (int32_t i = 0; i < count; i++) {
        size_t size = lengths[i];
        if (size > code->bytes_size - offset && i < count - 1)
            return NULL;
        if (size > code->bytes_size - offset) /* it ends in another image */
            size = code->bytes_size - offset;
        at = put_instruction(code, &decoder, at, code->tables->ip[block] + offset, code->bytes + offset, size,
                             bytes != 0);
        offset += size;
    }
    code->texts[block] = (uint32_t)code->store_used + 1;
    code->store_used += (size_t)(at - start);
    return start;
}

/* ---- creation ---- */

static bool formatter_init(ZydisFormatter *formatter)
{
    return ZYAN_SUCCESS(ZydisFormatterInit(formatter, ZYDIS_FORMATTER_STYLE_INTEL)) &&
           ZYAN_SUCCESS(ZydisFormatterSetProperty(formatter, ZYDIS_FORMATTER_PROP_HEX_UPPERCASE, ZYAN_FALSE)) &&
           ZYAN_SUCCESS(ZydisFormatterSetProperty(formatter, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE,
                                                  ZYDIS_PADDING_DISABLED)) &&
           ZYAN_SUCCESS(ZydisFormatterSetProperty(formatter, ZYDIS_FORMATTER_PROP_IMM_PADDING,
                                                  ZYDIS_PADDING_DISABLED)) &&
           ZYAN_SUCCESS(ZydisFormatterSetProperty(formatter, ZYDIS_FORMATTER_PROP_DISP_PADDING,
                                                  ZYDIS_PADDING_DISABLED));
}

static int code_init(struct dump_code *code, const struct dump_tables *tables)
{
    code->tables = tables;
    code->lengths = calloc(tables->block_count + 1, sizeof *code->lengths);
    code->bad = calloc(tables->block_count + 1, 1);
    code->texts = calloc(tables->block_count + 1, sizeof *code->texts);
    code->files = malloc((tables->image_count + 1) * sizeof *code->files);
    if (code->files)
        memset(code->files, -1, (tables->image_count + 1) * sizeof *code->files); /* none is open */
    code->bytes = malloc(MAX_BLOCK + MAX_INSTRUCTION);
    code->store = malloc(TEXT_STORE); /* not touched before it is needed */
    code->image = pt_image_alloc(NULL);
    if (!code->lengths || !code->bad || !code->texts || !code->files || !code->bytes || !code->store || !code->image)
        return -ENOMEM;
    if (pt_image_set_callback(code->image, read_window, &code->window) < 0)
        return -ENOMEM;
    code->walker = ptd_walker_create(code->image);
    return code->walker && formatter_init(&code->formatter) ? 0 : -ENOMEM;
}

int dump_code_create(const struct dump_tables *tables, struct dump_code **ret)
{
    struct dump_code *code = calloc(1, sizeof *code);
    if (!code)
        return -ENOMEM;
    int error = code_init(code, tables);
    if (error < 0) {
        dump_code_destroy(code);
        return error;
    }
    *ret = code;
    return 0;
}

void dump_code_destroy(struct dump_code *code)
{
    if (!code)
        return;
    if (code->files)
        close_files(code);
    while (code->chunks) {
        struct chunk *next = code->chunks->next;
        free(code->chunks);
        code->chunks = next;
    }
    ptd_walker_destroy(code->walker);
    if (code->image)
        pt_image_free(code->image);
    free(code->lengths);
    free(code->bad);
    free(code->texts);
    free(code->files);
    free(code->bytes);
    free(code->store);
    free(code);
}
