/* SPDX-License-Identifier: MIT */
/* Instruction by instruction through straight code, with libipt's own instruction decoder. */
#ifndef PTD_WALKER_H
#define PTD_WALKER_H

#include "api.h"

#include <intel-pt.h>
#include <stdbool.h>

struct ptd_walker;

/* What a walk found. */
struct ptd_walk {
    uint32_t instructions;
    uint64_t last_ip;    /* address of the last instruction */
    uint64_t end;        /* address after it */
    uint64_t target;     /* where it leads; 0: it is no direct branch */
    int isid;            /* the section it lies in */
    enum ptd_class last; /* its class */
};

/* A walker over the code of `image`, which it borrows. NULL: out of memory. */
struct ptd_walker *ptd_walker_create(struct pt_image *image);
void ptd_walker_destroy(struct ptd_walker *walker);

/*
 * Walk at most `instructions` instructions from `ip`, up to the first branch; their lengths go to `lengths` unless
 * it is NULL. Returns 0 or libipt's error of the instruction that could not be decoded; `ret` is filled either way.
 */
int ptd_walker_walk(struct ptd_walker *walker, uint64_t ip, enum pt_exec_mode mode, uint32_t instructions,
                    uint8_t *lengths, struct ptd_walk *ret);

/* Straight code up to and with a branch, or up to the end of its section, or to an address. */
struct ptd_straight {
    uint32_t instructions;
    int isid;            /* the section all of it lies in */
    uint64_t last_ip;    /* address of the last instruction */
    uint64_t end;        /* address after it */
    uint64_t target;     /* where a direct branch leads */
    enum ptd_class last; /* PTD_OTHER: it goes on at `end` */
    bool call;           /* the last instruction is a near or far call */
};

enum { PTD_STRAIGHT_MAX = 60000 }; /* instructions; libipt's blocks hold 65535, and split longer code */

/*
 * Walk 64-bit code from `ip` to the first branch, or to `stop` if that comes first (0: nowhere). Returns 0, libipt's
 * error of an instruction that could not be decoded, or -pte_not_supported for code that only libipt can be asked
 * about: instructions across two sections, moves to CR3, blocks without end.
 */
int ptd_walker_straight(struct ptd_walker *walker, uint64_t ip, uint64_t stop, struct ptd_straight *ret);

#endif
