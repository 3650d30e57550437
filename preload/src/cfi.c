/* SPDX-License-Identifier: MIT */
/* Call frame information; cfi.h says what is read and what is guaranteed. */
#define _GNU_SOURCE
#include "cfi.h"

#include <dlfcn.h>
#include <string.h>

enum {
	PE_ABSPTR = 0x00,
	PE_UDATA4 = 0x03,
	PE_SDATA4 = 0x0b,
	PE_SDATA8 = 0x0c,
	PE_PCREL = 0x10,
	PE_DATAREL = 0x30,
	PE_OMIT = 0xff,
	REGISTER_RBX = 3,
	REGISTER_RBP = 6,
	REGISTER_RSP = 7,
	REGISTER_RETURN = 16,
	OP_DEREF = 0x06,
	OP_BREG0 = 0x70,
	STATES = 4,        /* nesting of remember_state; compilers use one */
	SCAN_LIMIT = 4096, /* CFA instructions looked at in one function */
};

/* A bounded reader; `bad` once it was asked to go beyond its end. */
struct cursor {
	const uint8_t *at;
	const uint8_t *end;
	bool bad;
};

static uint64_t take(struct cursor *c, unsigned size)
{
	uint64_t value = 0;
	if (c->bad || (size_t)(c->end - c->at) < size) {
		c->bad = true;
		return 0;
	}
	memcpy(&value, c->at, size);
	c->at += size;
	return value;
}

static uint64_t uleb(struct cursor *c)
{
	uint64_t value = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte = (uint8_t)take(c, 1);
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return value;
	}
	c->bad = true;
	return 0;
}

static int64_t sleb(struct cursor *c)
{
	uint64_t value = 0;
	for (unsigned shift = 0; shift < 64;) {
		uint8_t byte = (uint8_t)take(c, 1);
		value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
		if (!(byte & 0x80)) {
			if ((byte & 0x40) && shift < 64)
				value |= ~0ull << shift;
			return (int64_t)value;
		}
	}
	c->bad = true;
	return 0;
}

static void skip(struct cursor *c, uint64_t size)
{
	if (c->bad || (uint64_t)(c->end - c->at) < size)
		c->bad = true;
	else
		c->at += size;
}

static uint64_t pointer(struct cursor *c, uint8_t encoding)
{
	uint64_t base = (encoding & 0x70) == PE_PCREL ? (uint64_t)c->at : 0;
	switch (encoding & 0x0f) {
	case PE_ABSPTR:
	case PE_SDATA8:
	case 0x04: /* udata8 */
		return base + take(c, 8);
	case PE_SDATA4:
		return base + (uint64_t)(int64_t)(int32_t)take(c, 4);
	case PE_UDATA4:
		return base + take(c, 4);
	default:
		c->bad = true;
		return 0;
	}
}

struct description {
	uint64_t code_align;
	int64_t data_align;
	uint8_t encoding; /* of addresses in its entries */
	bool augmented;   /* entries carry augmentation data */
	bool signal;
	struct cursor program;
};

static bool read_cie(const uint8_t *start, const uint8_t *limit, struct description *ret)
{
	struct cursor c = {start, limit, false};
	uint64_t length = take(&c, 4);
	if (c.bad || length == 0 || length == 0xffffffff || length > (uint64_t)(limit - c.at))
		return false;
	c.end = c.at + length;
	if (take(&c, 4) != 0)
		return false;
	uint8_t version = (uint8_t)take(&c, 1);
	const char *augmentation = (const char *)c.at;
	while (take(&c, 1) != 0 && !c.bad)
		;
	if (c.bad || (version != 1 && version != 3))
		return false;
	*ret = (struct description){.encoding = PE_ABSPTR};
	ret->code_align = uleb(&c);
	ret->data_align = sleb(&c);
	if ((version == 1 ? take(&c, 1) : uleb(&c)) != REGISTER_RETURN)
		return false;
	if (augmentation[0] == 'z') {
		ret->augmented = true;
		uint64_t size = uleb(&c);
		if (c.bad || size > (uint64_t)(c.end - c.at))
			return false;
		struct cursor data = {c.at, c.at + size, false};
		c.at += size;
		for (const char *letter = augmentation + 1; *letter && !data.bad; letter++) {
			if (*letter == 'R')
				ret->encoding = (uint8_t)take(&data, 1);
			else if (*letter == 'L')
				take(&data, 1);
			else if (*letter == 'P')
				pointer(&data, (uint8_t)take(&data, 1) & 0x7f);
			else if (*letter == 'S')
				ret->signal = true;
			else
				return false;
		}
		if (data.bad)
			return false;
	} else if (augmentation[0] != 0) {
		return false;
	}
	ret->program = c;
	return !c.bad;
}

/* What a row of the table says. A rule that cannot be expressed makes the row bad only when it matters: for the CFA,
 * rbp and the return address. Of rbx it is lost. */
struct row {
	uint8_t cfa;
	uint8_t rbp;
	uint8_t rbx;
	bool rbp_bad;
	bool return_moved;
	bool return_undefined;
	int64_t cfa_offset;
	int64_t rbp_offset;
};

static void set_cfa_register(struct row *row, uint64_t number)
{
	row->cfa = number == REGISTER_RSP   ? PTW_CFA_RSP
		   : number == REGISTER_RBP ? PTW_CFA_RBP
		   : number == REGISTER_RBX ? PTW_CFA_RBX
					    : PTW_CFA_NONE;
}

static void saved_at_cfa(struct row *row, uint64_t number, int64_t offset)
{
	if (number == REGISTER_RBP) {
		row->rbp = PTW_RBP_AT_CFA;
		row->rbp_offset = offset;
		row->rbp_bad = false;
	} else if (number == REGISTER_RBX) {
		bool near = offset < 0 && offset > -8 * PTW_RBX_LOST && offset % 8 == 0;
		row->rbx = near ? (uint8_t)(-offset / 8) : PTW_RBX_LOST;
	} else if (number == REGISTER_RETURN) {
		row->return_moved = offset != -8;
	}
}

static void spoiled(struct row *row, uint64_t number)
{
	if (number == REGISTER_RBP)
		row->rbp_bad = true;
	else if (number == REGISTER_RBX)
		row->rbx = PTW_RBX_LOST;
	else if (number == REGISTER_RETURN)
		row->return_moved = true;
}

static void same_again(struct row *row, const struct row *first, uint64_t number)
{
	if (number == REGISTER_RBP) {
		row->rbp = first->rbp;
		row->rbp_offset = first->rbp_offset;
		row->rbp_bad = first->rbp_bad;
	} else if (number == REGISTER_RBX) {
		row->rbx = first->rbx;
	} else if (number == REGISTER_RETURN) {
		row->return_moved = first->return_moved;
		row->return_undefined = first->return_undefined;
	}
}

/* breg6 or breg7 with an offset, and perhaps a dereference: what realigning functions use. */
static bool simple_expression(struct cursor *c, uint8_t *number, int64_t *offset, bool *deref)
{
	uint64_t size = uleb(c);
	const uint8_t *start = c->at;
	skip(c, size);
	if (c->bad || size < 2)
		return false;
	struct cursor e = {start, c->at, false};
	uint8_t op = (uint8_t)take(&e, 1);
	if (op != OP_BREG0 + REGISTER_RBP && op != OP_BREG0 + REGISTER_RSP)
		return false;
	*number = op - OP_BREG0;
	*offset = sleb(&e);
	*deref = e.at < e.end && take(&e, 1) == OP_DEREF;
	return !e.bad && e.at == e.end;
}

static void cfa_expression(struct cursor *c, struct row *row)
{
	uint8_t number = 0;
	bool deref = false;
	row->cfa = PTW_CFA_NONE;
	if (simple_expression(c, &number, &row->cfa_offset, &deref))
		row->cfa = number == REGISTER_RSP ? (deref ? PTW_CFA_RSP_DEREF : PTW_CFA_RSP)
						  : (deref ? PTW_CFA_RBP_DEREF : PTW_CFA_RBP);
}

static void register_expression(struct cursor *c, struct row *row, uint64_t target)
{
	uint8_t number = 0;
	int64_t offset = 0;
	bool deref = false;
	bool simple = simple_expression(c, &number, &offset, &deref);
	if (target == REGISTER_RBP && simple && !deref && number == REGISTER_RBP) {
		row->rbp = PTW_RBP_AT_RBP;
		row->rbp_offset = offset;
		row->rbp_bad = false;
	} else {
		spoiled(row, target);
	}
}

struct machine {
	struct row row;
	struct row first; /* after the CIE's instructions: what DW_CFA_restore goes back to */
	struct row saved[STATES];
	unsigned depth;
	uint64_t location;
	const struct description *cie;
};

/* An offset in units of the data alignment; wraps instead of overflowing. */
static int64_t scaled(const struct machine *m, uint64_t offset)
{
	return (int64_t)(offset * (uint64_t)m->cie->data_align);
}

/* One instruction. False: not understood, or the row for `pc` is complete (then c->at == c->end). */
static bool step(struct machine *m, struct cursor *c, uint64_t pc)
{
	uint8_t op = (uint8_t)take(c, 1), low = op & 0x3f;
	uint64_t number, delta = 0;
	struct row *row = &m->row;
	switch (op & 0xc0) {
	case 0x40: /* advance_loc */
		delta = low;
		goto advance;
	case 0x80: /* offset */
		saved_at_cfa(row, low, scaled(m, uleb(c)));
		return !c->bad;
	case 0xc0: /* restore */
		same_again(row, &m->first, low);
		return !c->bad;
	default:
		break;
	}
	switch (op) {
	case 0x00: /* nop */
		return !c->bad;
	case 0x01: /* set_loc */
		m->location = pointer(c, m->cie->encoding);
		if (m->location > pc)
			c->at = c->end;
		return !c->bad;
	case 0x02: /* advance_loc1 */
		delta = take(c, 1);
		goto advance;
	case 0x03:
		delta = take(c, 2);
		goto advance;
	case 0x04:
		delta = take(c, 4);
		goto advance;
	case 0x05: /* offset_extended */
		number = uleb(c);
		saved_at_cfa(row, number, scaled(m, uleb(c)));
		return !c->bad;
	case 0x11: /* offset_extended_sf */
		number = uleb(c);
		saved_at_cfa(row, number, scaled(m, (uint64_t)sleb(c)));
		return !c->bad;
	case 0x06: /* restore_extended */
		same_again(row, &m->first, uleb(c));
		return !c->bad;
	case 0x07: /* undefined */
		number = uleb(c);
		if (number == REGISTER_RETURN)
			row->return_undefined = true;
		else
			spoiled(row, number);
		return !c->bad;
	case 0x08: /* same_value */
		number = uleb(c);
		if (number == REGISTER_RBP) {
			row->rbp = PTW_RBP_SAME;
			row->rbp_bad = false;
		} else if (number == REGISTER_RBX) {
			row->rbx = PTW_RBX_SAME;
		}
		return !c->bad;
	case 0x09: /* register */
		spoiled(row, uleb(c));
		uleb(c);
		return !c->bad;
	case 0x0a: /* remember_state */
		if (m->depth >= STATES)
			return false;
		m->saved[m->depth++] = *row;
		return !c->bad;
	case 0x0b: /* restore_state */
		if (m->depth == 0)
			return false;
		*row = m->saved[--m->depth];
		return !c->bad;
	case 0x0c: /* def_cfa */
		set_cfa_register(row, uleb(c));
		row->cfa_offset = (int64_t)uleb(c);
		return !c->bad;
	case 0x12: /* def_cfa_sf */
		set_cfa_register(row, uleb(c));
		row->cfa_offset = scaled(m, (uint64_t)sleb(c));
		return !c->bad;
	case 0x0d: /* def_cfa_register */
		set_cfa_register(row, uleb(c));
		return !c->bad;
	case 0x0e: /* def_cfa_offset */
		row->cfa_offset = (int64_t)uleb(c);
		return !c->bad;
	case 0x13: /* def_cfa_offset_sf */
		row->cfa_offset = scaled(m, (uint64_t)sleb(c));
		return !c->bad;
	case 0x0f: /* def_cfa_expression */
		cfa_expression(c, row);
		return !c->bad;
	case 0x10: /* expression */
		number = uleb(c);
		register_expression(c, row, number);
		return !c->bad;
	case 0x14: /* val_offset */
	case 0x15:
		spoiled(row, uleb(c));
		uleb(c); /* as long as an sleb */
		return !c->bad;
	case 0x16: /* val_expression */
		spoiled(row, uleb(c));
		skip(c, uleb(c));
		return !c->bad;
	case 0x2e: /* GNU_args_size */
		uleb(c);
		return !c->bad;
	default:
		return false;
	}
advance:
	m->location += delta * m->cie->code_align;
	if (m->location > pc)
		c->at = c->end;
	return !c->bad;
}

static bool run(struct machine *m, struct cursor program, uint64_t pc)
{
	for (unsigned i = 0; program.at < program.end; i++)
		if (i >= SCAN_LIMIT || !step(m, &program, pc))
			return false;
	return true;
}

static struct ptw_rule to_rule(const struct row *row)
{
	struct ptw_rule rule = {0, 0, PTW_CFA_NONE, PTW_RBX_SAME, PTW_RBP_SAME};
	if (row->return_undefined) {
		rule.cfa = PTW_CFA_END;
		return rule;
	}
	if (row->return_moved || row->rbp_bad || row->cfa_offset != (int32_t)row->cfa_offset ||
	    row->rbp_offset != (int16_t)row->rbp_offset)
		return rule;
	rule.cfa = row->cfa;
	rule.cfa_offset = (int32_t)row->cfa_offset;
	rule.rbp = row->rbp & 3;
	rule.rbp_offset = (int16_t)row->rbp_offset;
	rule.rbx = row->rbx & PTW_RBX_LOST;
	return rule;
}

struct ptw_rule ptw_cfi_rule(const uint8_t *start, const uint8_t *entry, const uint8_t *end, uint64_t pc)
{
	static const struct ptw_rule none = {0, 0, PTW_CFA_NONE, PTW_RBX_SAME, PTW_RBP_SAME};
	struct cursor c = {entry, end, false};
	struct description cie;
	uint64_t length = take(&c, 4);
	if (c.bad || length == 0 || length == 0xffffffff || length > (uint64_t)(end - c.at))
		return none;
	c.end = c.at + length;
	const uint8_t *here = c.at;
	uint32_t back = (uint32_t)take(&c, 4);
	if (c.bad || back == 0 || back > (uint64_t)(here - start) || !read_cie(here - back, end, &cie))
		return none;
	uint64_t first = pointer(&c, cie.encoding & 0x7f);
	uint64_t size = pointer(&c, cie.encoding & 0x0f);
	if (cie.augmented)
		skip(&c, uleb(&c));
	if (c.bad || pc - first >= size)
		return none;
	if (cie.signal)
		return (struct ptw_rule){0, 0, PTW_CFA_SIGNAL, PTW_RBX_SAME, PTW_RBP_SAME};
	struct machine m = {.location = first, .cie = &cie};
	if (!run(&m, cie.program, UINT64_MAX))
		return none;
	m.first = m.row;
	m.location = first;
	return run(&m, c, pc) ? to_rule(&m.row) : none;
}

/* The entry for `pc` by the sorted table of .eh_frame_hdr: pairs of 32-bit offsets from the section's start. */
static const uint8_t *search(const uint8_t *header, const uint8_t *end, uint64_t pc)
{
	struct cursor c = {header, end, false};
	uint8_t version = (uint8_t)take(&c, 1), frame_encoding = (uint8_t)take(&c, 1);
	uint8_t count_encoding = (uint8_t)take(&c, 1), table_encoding = (uint8_t)take(&c, 1);
	if (version != 1 || count_encoding == PE_OMIT || table_encoding != (PE_DATAREL | PE_SDATA4))
		return NULL;
	if (frame_encoding != PE_OMIT)
		pointer(&c, frame_encoding & 0x7f);
	uint64_t count = pointer(&c, count_encoding & 0x7f);
	if (c.bad || count == 0 || count > (uint64_t)(end - c.at) / 8)
		return NULL;
	uint64_t low = 0, high = count;
	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;
		int32_t offset;
		memcpy(&offset, c.at + middle * 8, 4);
		if ((uint64_t)header + (uint64_t)(int64_t)offset <= pc)
			low = middle;
		else
			high = middle;
	}
	int32_t entry;
	memcpy(&entry, c.at + low * 8 + 4, 4);
	return header + entry;
}

int _dl_find_object(void *, struct dl_find_object *) __attribute__((weak));

struct ptw_rule ptw_cfi_find(uint64_t pc)
{
	static const struct ptw_rule none = {0, 0, PTW_CFA_NONE, PTW_RBX_SAME, PTW_RBP_SAME};
	struct dl_find_object object;
	if (!_dl_find_object || _dl_find_object((void *)pc, &object) != 0 || !object.dlfo_eh_frame)
		return none;
	const uint8_t *start = object.dlfo_map_start, *end = object.dlfo_map_end;
	const uint8_t *header = object.dlfo_eh_frame;
	if (header < start || header >= end)
		return none;
	const uint8_t *entry = search(header, end, pc);
	return entry && entry >= start && entry < end ? ptw_cfi_rule(start, entry, end, pc) : none;
}
