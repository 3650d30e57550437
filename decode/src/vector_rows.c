/* SPDX-License-Identifier: MIT */
/* Building rows of events; vector_rows.h says what is guaranteed. */
#include "vector_rows.h"

#include "grow.h"

#include <stdio.h>
#include <string.h>

static uint64_t word_at(const unsigned char *at)
{
	uint64_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

/* --- columns ----------------------------------------------------------------------------------------------------- */

static int grow_rows(struct evv_values *values)
{
	if (values->rows < values->capacity)
		return 0;
	size_t capacity = values->capacity ? values->capacity * 2 : 256;
	int error = ptd_grow(&values->word, capacity, sizeof *values->word);
	if (error == 0)
		error = ptd_grow(&values->offset, capacity + 1, sizeof *values->offset);
	if (error == 0)
		error = ptd_grow(&values->valid, capacity, 1);
	if (error == 0) {
		values->capacity = capacity;
		values->offset[0] = 0;
	}
	return error;
}

static int reserve(struct evv_values *values, size_t size)
{
	size_t wanted = values->data_size + size;
	if (wanted <= values->data_capacity)
		return 0;
	size_t capacity = values->data_capacity * 2 > wanted ? values->data_capacity * 2 : wanted + 4096;
	int error = ptd_grow(&values->data, capacity, 1);
	if (error == 0)
		values->data_capacity = capacity;
	return error;
}

/* The row ends where its data does. */
static int end_row(struct evv_values *values, bool valid, uint64_t word)
{
	int error = grow_rows(values);
	if (error < 0)
		return error;
	values->word[values->rows] = word;
	values->valid[values->rows] = valid;
	values->offset[++values->rows] = (int32_t)values->data_size;
	return 0;
}

static int append(struct evv_values *values, const void *data, size_t size)
{
	int error = reserve(values, size);
	if (error == 0 && size)
		memcpy(values->data + values->data_size, data, size);
	values->data_size += error == 0 ? size : 0;
	return error;
}

/* Bytes of the UTF-8 character there; 0: it is none (RFC 3629: no surrogates, nothing overlong, at most U+10FFFF). */
static size_t character(const unsigned char *at, size_t left)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t size = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >> 3 == 30 ? 4 : 0;
	if (size < 2 || size > left)
		return size == 1;
	uint32_t code = at[0] & (0x7f >> size);
	for (size_t i = 1; i < size; i++) {
		if (at[i] >> 6 != 2)
			return 0;
		code = code << 6 | (at[i] & 0x3f);
	}
	return code < least[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : size;
}

static int escape(struct evv_values *values, unsigned char byte)
{
	char text[5];
	snprintf(text, sizeof text, "\\x%02x", byte);
	return append(values, text, 4);
}

/* Bytes that are no UTF-8, and NULs, become \xNN. */
static int append_text(struct evv_values *values, const unsigned char *text, size_t size)
{
	int error = 0;
	for (size_t at = 0, plain = 0; error == 0 && at < size;) {
		size_t more = text[at] ? character(text + at, size - at) : 0;
		at += more;
		if (more && at < size)
			continue;
		error = append(values, text + plain, at - plain);
		if (error == 0 && !more)
			error = escape(values, text[at++]);
		plain = at;
	}
	return error;
}

/* --- pairs ------------------------------------------------------------------------------------------------------- */

/* A pair, found and checked. */
struct pair {
	const unsigned char *key;
	size_t key_size;
	uint16_t type;
	uint64_t value;
	const unsigned char *data;
};

static bool read_pair(const struct evv_origin *origin, const unsigned char *record, uint32_t size, uint32_t offset,
		      struct pair *ret, uint32_t *before)
{
	struct ptv_pair head;
	if (offset > size || size - offset < sizeof head || offset % 8)
		return false;
	memcpy(&head, record + offset, sizeof head);
	const unsigned char *at = record + offset + sizeof head;
	uint64_t left = size - offset - sizeof head;
	if (head.key == PTV_KEY_INLINE) {
		if (left < 8 || word_at(at) > left - 8)
			return false;
		ret->key = at + 8;
		ret->key_size = word_at(at);
		uint64_t named = 8 + ((ret->key_size + 7) & ~7ull);
		if (named > left)
			return false;
		at += named;
		left -= named;
	} else {
		if (head.key >= PTV_KEYS || origin->keys[head.key].state != PTV_NAME_THERE)
			return false;
		ret->key = (const unsigned char *)origin->keys[head.key].name;
		ret->key_size = strlen(origin->keys[head.key].name);
	}
	if (head.type == 0 || head.type >= PTV_TYPES || (head.type >= PTV_STRING && head.value > left) ||
	    (head.type == PTV_WORDS && head.value % 8))
		return false;
	ret->type = head.type;
	ret->value = head.value;
	ret->data = at;
	*before = head.before;
	return true;
}

static int append_words(struct evv_values *values, const unsigned char *data, uint64_t size)
{
	int error = 0;
	for (uint64_t at = 0; error == 0 && at < size; at += 8) {
		char text[32];
		int length = snprintf(text, sizeof text, "%s0x%llx", at ? " " : "",
				      (unsigned long long)word_at(data + at));
		error = append(values, text, (size_t)length);
	}
	return error;
}

static int append_value(struct evv_values *values, const struct pair *pair)
{
	char text[64];
	double number;
	int length, error = 0;
	switch ((enum ptv_type)pair->type) {
	case PTV_STRING:
		return append_text(values, pair->data, pair->value);
	case PTV_BYTES:
		for (uint64_t i = 0; error == 0 && i < pair->value; i++)
			error = escape(values, pair->data[i]);
		return error;
	case PTV_WORDS:
		return append_words(values, pair->data, pair->value);
	case PTV_F64:
		memcpy(&number, &pair->value, sizeof number);
		length = snprintf(text, sizeof text, "%.17g", number);
		break;
	case PTV_I64:
		length = snprintf(text, sizeof text, "%lld", (long long)pair->value);
		break;
	default:
		length = snprintf(text, sizeof text, "%llu", (unsigned long long)pair->value);
	}
	return append(values, text, (size_t)length);
}

/* Where the event's pairs are, the newest first; their number, or -1: the chain is broken. */
static int find_pairs(uint32_t *ret, const struct evv_origin *origin, const unsigned char *record, uint32_t size)
{
	uint32_t at, before = size;
	struct pair pair;
	int count = 0;
	memcpy(&at, record + offsetof(struct ptv_record, pairs), sizeof at);
	while (at) {
		if (at >= before || count == EVV_PAIRS)
			return -1;
		ret[count++] = before = at;
		if (!read_pair(origin, record, size, before, &pair, &at))
			return -1;
	}
	return count;
}

static int add_pairs(struct evv_rows *rows, const struct evv_origin *origin, const unsigned char *record,
		     uint32_t size, int count)
{
	int error = 0;
	while (error == 0 && count-- > 0) {
		struct pair pair;
		uint32_t before;
		if (!read_pair(origin, record, size, rows->pair[count], &pair, &before))
			return -EIO; /* it could a moment ago */
		error = append_text(&rows->key, pair.key, pair.key_size);
		if (error == 0)
			error = end_row(&rows->key, true, 0);
		if (error == 0)
			error = append_value(&rows->value, &pair);
		if (error == 0)
			error = end_row(&rows->value, true, 0);
	}
	return error;
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

static int grow(struct evv_rows *rows)
{
	if (rows->rows < rows->capacity)
		return 0;
	uint32_t capacity = rows->capacity ? rows->capacity * 2 : 256;
	int error = ptd_grow(&rows->pid, capacity, sizeof *rows->pid);
	error = error ? error : ptd_grow(&rows->tid, capacity, sizeof *rows->tid);
	error = error ? error : ptd_grow(&rows->producer, capacity, sizeof *rows->producer);
	error = error ? error : ptd_grow(&rows->tsc, capacity, sizeof *rows->tsc);
	error = error ? error : ptd_grow(&rows->truncated, capacity, 1);
	error = error ? error : ptd_grow(&rows->pair_offset, capacity + 1, sizeof *rows->pair_offset);
	if (error == 0) {
		rows->capacity = capacity;
		rows->pair_offset[0] = 0;
	}
	return error;
}

/* Every field that is not a number lies within the event, behind the fields. */
static bool is_sound(const struct ptv_kind_entry *kind, const struct ptv_record *head, const unsigned char *record,
		     uint32_t size)
{
	uint32_t fixed = (uint32_t)sizeof *head + 8 * kind->fields;
	if (size < fixed || (kind->fields < 32 && head->present >> kind->fields))
		return false;
	for (uint32_t i = 0; i < kind->fields; i++) {
		uint64_t word = word_at(record + sizeof *head + 8 * i);
		uint32_t offset = (uint32_t)word, length = (uint32_t)(word >> 32);
		if (!(head->present >> i & 1) || kind->field[i].type < PTV_STRING)
			continue;
		if (offset < fixed || offset > size || length > size - offset ||
		    (kind->field[i].type == PTV_WORDS && length % 8))
			return false;
	}
	return true;
}

static int add_field(struct evv_values *values, uint8_t type, bool present, const unsigned char *record, uint64_t word)
{
	int error = 0;
	if (present && type == PTV_STRING)
		error = append_text(values, record + (uint32_t)word, word >> 32);
	else if (present && type > PTV_STRING)
		error = append(values, record + (uint32_t)word, word >> 32);
	return error ? error : end_row(values, present, type < PTV_STRING && present ? word : 0);
}

int evv_rows_add(struct evv_rows *rows, const struct evv_origin *origin, const unsigned char *record, uint32_t size)
{
	struct ptv_record head;
	memcpy(&head, record, sizeof head);
	int pairs = find_pairs(rows->pair, origin, record, size);
	if (pairs < 0 || !is_sound(rows->kind, &head, record, size))
		return 0;
	int error = grow(rows);
	for (uint32_t i = 0; error == 0 && i < rows->kind->fields; i++)
		error = add_field(&rows->field[i], rows->kind->field[i].type, head.present >> i & 1, record,
				  word_at(record + sizeof head + 8 * i));
	if (error == 0)
		error = add_pairs(rows, origin, record, size, pairs);
	if (error < 0)
		return error;
	uint32_t row = rows->rows++;
	rows->pid[row] = origin->pid;
	rows->tid[row] = origin->tid;
	rows->producer[row] = origin->producer;
	rows->tsc[row] = head.tsc;
	rows->truncated[row] = head.flags & PTV_TRUNCATED;
	rows->pair_offset[row + 1] = (int32_t)rows->key.rows;
	return 1;
}

bool evv_rows_full(const struct evv_rows *rows)
{
	if (rows->rows >= EVV_ROWS || rows->key.data_size >= EVV_DATA_BYTES || rows->value.data_size >= EVV_DATA_BYTES)
		return true;
	for (uint32_t i = 0; i < rows->kind->fields; i++)
		if (rows->field[i].data_size >= EVV_DATA_BYTES)
			return true;
	return false;
}

static struct evv_column column(const struct evv_values *values, uint32_t type)
{
	return (struct evv_column){type, values->valid, values->word, values->offset, values->data};
}

void evv_rows_batch(const struct evv_rows *rows, uint32_t kind, struct evv_batch *ret)
{
	*ret = (struct evv_batch){
		.kind = kind,
		.rows = rows->rows,
		.pid = rows->pid,
		.tid = rows->tid,
		.producer = rows->producer,
		.tsc = rows->tsc,
		.truncated = rows->truncated,
		.pair_offset = rows->pair_offset,
		.key = column(&rows->key, PTV_STRING),
		.value = column(&rows->value, PTV_STRING),
	};
	for (uint32_t i = 0; i < rows->kind->fields; i++)
		ret->field[i] = column(&rows->field[i], rows->kind->field[i].type);
}

static void clear(struct evv_values *values) { values->rows = values->data_size = 0; }

void evv_rows_clear(struct evv_rows *rows)
{
	rows->rows = 0;
	clear(&rows->key);
	clear(&rows->value);
	for (uint32_t i = 0; i < PTV_FIELDS; i++)
		clear(&rows->field[i]);
}

static void values_deinit(struct evv_values *values)
{
	free(values->word);
	free(values->offset);
	free(values->data);
	free(values->valid);
}

void evv_rows_deinit(struct evv_rows *rows)
{
	free(rows->pid);
	free(rows->tid);
	free(rows->producer);
	free(rows->tsc);
	free(rows->truncated);
	free(rows->pair_offset);
	values_deinit(&rows->key);
	values_deinit(&rows->value);
	for (uint32_t i = 0; i < PTV_FIELDS; i++)
		values_deinit(&rows->field[i]);
}
