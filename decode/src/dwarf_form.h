/* SPDX-License-Identifier: MIT */
/* Values of DWARF attributes in their forms (DWARF 5, section 7.5.6). Pure functions over the caller's sections. */
#ifndef PTD_DWARF_FORM_H
#define PTD_DWARF_FORM_H

#include "api.h"
#include "cursor.h"

enum ptd_form {
    DW_FORM_ADDR = 0x01,
    DW_FORM_BLOCK2 = 0x03,
    DW_FORM_BLOCK4 = 0x04,
    DW_FORM_DATA2 = 0x05,
    DW_FORM_DATA4 = 0x06,
    DW_FORM_DATA8 = 0x07,
    DW_FORM_STRING = 0x08,
    DW_FORM_BLOCK = 0x09,
    DW_FORM_BLOCK1 = 0x0A,
    DW_FORM_DATA1 = 0x0B,
    DW_FORM_FLAG = 0x0C,
    DW_FORM_SDATA = 0x0D,
    DW_FORM_STRP = 0x0E,
    DW_FORM_UDATA = 0x0F,
    DW_FORM_REF_ADDR = 0x10,
    DW_FORM_REF4 = 0x13,
    DW_FORM_SEC_OFFSET = 0x17,
    DW_FORM_EXPRLOC = 0x18,
    DW_FORM_FLAG_PRESENT = 0x19,
    DW_FORM_STRX = 0x1A,
    DW_FORM_ADDRX = 0x1B,
    DW_FORM_STRP_SUP = 0x1D,
    DW_FORM_DATA16 = 0x1E,
    DW_FORM_LINE_STRP = 0x1F,
    DW_FORM_IMPLICIT_CONST = 0x21,
    DW_FORM_LOCLISTX = 0x22,
    DW_FORM_RNGLISTX = 0x23,
    DW_FORM_STRX1 = 0x25,
    DW_FORM_STRX2 = 0x26,
    DW_FORM_STRX3 = 0x27,
    DW_FORM_STRX4 = 0x28,
    DW_FORM_ADDRX1 = 0x29,
    DW_FORM_ADDRX2 = 0x2A,
    DW_FORM_ADDRX3 = 0x2B,
    DW_FORM_ADDRX4 = 0x2C,
    DW_FORM_GNU_STRP_ALT = 0x1F21
};

/* What the sizes of some forms depend on; an address size of 0 where there are no addresses. */
struct ptd_form_sizes {
    unsigned version;
    unsigned offset_size;
    unsigned address_size;
};

/* A value as far as anybody here wants to know it. */
struct ptd_form_value {
    uint64_t number;
    const char *text; /* NULL none */
};

/* Whether values of a form take no bytes. */
static inline bool ptd_form_is_empty(uint64_t form)
{
    return form == DW_FORM_FLAG_PRESENT || form == DW_FORM_IMPLICIT_CONST;
}

/* Read a value; a form that is not known makes the cursor bad. */
struct ptd_form_value ptd_form_read(const struct ptd_form_sizes *sizes, struct ptd_cursor *at, uint64_t form,
                                    const struct ptd_line_sections *sections);

#endif
