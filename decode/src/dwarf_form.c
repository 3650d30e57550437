/* SPDX-License-Identifier: MIT */
/* DWARF values; lengths are checked before bytes are read, texts are borrowed from the sections. */
#include "dwarf_form.h"

enum { MAX_TEXT = 4096 };

/* The text at an offset in a section of texts; "" when there is none, or a longer one than any path. */
static const char *text_at(const uint8_t *section, size_t size, uint64_t offset)
{
    if (offset >= size || !memchr(section + offset, 0, size - offset < MAX_TEXT ? size - offset : MAX_TEXT))
        return "";
    return (const char *)section + offset;
}

struct ptd_form_value ptd_form_read(const struct ptd_form_sizes *sizes, struct ptd_cursor *at, uint64_t form,
                                    const struct ptd_line_sections *sections)
{
    struct ptd_form_value value = {0, NULL};
    switch (form) {
    case DW_FORM_STRING:
        value.text = ptd_cursor_text(at);
        break;
    case DW_FORM_STRP:
        value.text = text_at(sections->strings, sections->strings_size,
                             ptd_cursor_number(at, sizes->offset_size));
        break;
    case DW_FORM_LINE_STRP:
        value.text = text_at(sections->line_strings, sections->line_strings_size,
                             ptd_cursor_number(at, sizes->offset_size));
        break;
    case DW_FORM_STRP_SUP:
    case DW_FORM_GNU_STRP_ALT:
        value.text = text_at(sections->shared_strings, sections->shared_strings_size,
                             ptd_cursor_number(at, sizes->offset_size));
        break;
    case DW_FORM_SEC_OFFSET:
        value.number = ptd_cursor_number(at, sizes->offset_size);
        break;
    case DW_FORM_REF_ADDR:
        ptd_cursor_skip(at, sizes->version == 2 ? sizes->address_size : sizes->offset_size);
        break;
    case DW_FORM_ADDR:
        ptd_cursor_skip(at, sizes->address_size);
        break;
    case DW_FORM_DATA1:
    case DW_FORM_FLAG:
    case DW_FORM_STRX1:
    case DW_FORM_ADDRX1:
        value.number = ptd_cursor_number(at, 1);
        break;
    case DW_FORM_DATA2:
    case DW_FORM_STRX2:
    case DW_FORM_ADDRX2:
        value.number = ptd_cursor_number(at, 2);
        break;
    case DW_FORM_STRX3:
    case DW_FORM_ADDRX3:
        value.number = ptd_cursor_number(at, 3);
        break;
    case DW_FORM_DATA4:
    case DW_FORM_REF4:
    case DW_FORM_STRX4:
    case DW_FORM_ADDRX4:
        value.number = ptd_cursor_number(at, 4);
        break;
    case DW_FORM_DATA8:
        value.number = ptd_cursor_number(at, 8);
        break;
    case DW_FORM_DATA16:
        ptd_cursor_skip(at, 16);
        break;
    case DW_FORM_SDATA:
    case DW_FORM_UDATA:
    case DW_FORM_STRX:
    case DW_FORM_ADDRX:
    case DW_FORM_LOCLISTX:
    case DW_FORM_RNGLISTX:
        value.number = ptd_cursor_uleb(at);
        break;
    case DW_FORM_BLOCK:
    case DW_FORM_EXPRLOC:
        ptd_cursor_skip(at, ptd_cursor_uleb(at));
        break;
    case DW_FORM_BLOCK1:
        ptd_cursor_skip(at, ptd_cursor_number(at, 1));
        break;
    case DW_FORM_BLOCK2:
        ptd_cursor_skip(at, ptd_cursor_number(at, 2));
        break;
    case DW_FORM_BLOCK4:
        ptd_cursor_skip(at, ptd_cursor_number(at, 4));
        break;
    case DW_FORM_FLAG_PRESENT:
    case DW_FORM_IMPLICIT_CONST:
        break;
    default:
        at->bad = true;
    }
    return value;
}
