/* SPDX-License-Identifier: MIT */
/*
 * libiberty's demanglers behind one function. Names are hostile: a short one can stand for a text exponentially
 * longer, so the demangler is left (longjmp) when the text is full. Its callback forms keep their state on the stack;
 * only a punycode identifier of a Rust v0 name that ends in just that moment leaks its few bytes. Thread-safe.
 */
#include "demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <string.h>

/* A text being filled. `room` is left when it would overflow. */
struct output {
    char *text;
    size_t size;
    size_t used;
    jmp_buf room;
};

static void take(const char *part, size_t length, void *opaque)
{
    struct output *output = opaque;
    if (length > output->size - output->used)
        longjmp(output->room, 1);
    memcpy(output->text + output->used, part, length);
    output->used += length;
}

int64_t ptd_demangle(const char *name, char *text, size_t size)
{
    struct output output = {.text = text, .size = size};
    if (setjmp(output.room))
        return -1;
    if (rust_demangle_callback(name, DMGL_PARAMS | DMGL_ANSI, take, &output))
        return (int64_t)output.used;
    output.used = 0;
    if (strncmp(name, "_Z", 2) == 0 && cplus_demangle_v3_callback(name, DMGL_PARAMS | DMGL_ANSI, take, &output))
        return (int64_t)output.used;
    return -1;
}
