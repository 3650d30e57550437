/* SPDX-License-Identifier: MIT */
/* Kinds and keys; vector_names.h says what is guaranteed. */
#include "vector_names.h"

#include <errno.h>
#include <string.h>

static bool claim(const struct ptv_vector *vector, uint32_t *state)
{
	uint32_t free = PTV_NAME_FREE;
	/* counted first: the consumer looks for names while it has not seen as many as were begun */
	__atomic_fetch_add(&vector->head->names_claimed, 1, __ATOMIC_RELEASE);
	if (__atomic_compare_exchange_n(state, &free, PTV_NAME_CLAIMED, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return true;
	__atomic_fetch_sub(&vector->head->names_claimed, 1, __ATOMIC_RELAXED);
	return false;
}

static void publish(uint32_t *state) { __atomic_store_n(state, PTV_NAME_THERE, __ATOMIC_RELEASE); }

static int remember(const struct ptv_vector *vector, uint64_t *known, uint32_t number)
{
	__atomic_store_n(known, (uint64_t)vector->identity << 32 | number, __ATOMIC_RELAXED);
	return (int)number;
}

/* --- kinds ------------------------------------------------------------------------------------------------------- */

static bool sensible(const struct ptv_kind *kind)
{
	if (!*kind->name || strlen(kind->name) >= PTV_NAME || kind->fields > PTV_FIELDS)
		return false;
	for (uint32_t i = 0; i < kind->fields; i++) {
		const struct ptv_field *field = &kind->field[i];
		if (!*field->name || strlen(field->name) >= PTV_FIELD_NAME || field->type <= 0 ||
		    field->type >= PTV_TYPES)
			return false;
		for (uint32_t j = 0; j < i; j++)
			if (strcmp(field->name, kind->field[j].name) == 0)
				return false;
	}
	return true;
}

static bool is(const struct ptv_kind_entry *entry, const struct ptv_kind *kind)
{
	if (entry->fields != kind->fields || strncmp(entry->name, kind->name, PTV_NAME) != 0)
		return false;
	for (uint32_t i = 0; i < kind->fields; i++)
		if (entry->field[i].type != kind->field[i].type ||
		    strncmp(entry->field[i].name, kind->field[i].name, PTV_FIELD_NAME) != 0)
			return false;
	return true;
}

static void write_kind(struct ptv_kind_entry *entry, const struct ptv_kind *kind)
{
	memcpy(entry->name, kind->name, strlen(kind->name));
	entry->fields = kind->fields;
	for (uint32_t i = 0; i < kind->fields; i++) {
		entry->field[i].type = (uint8_t)kind->field[i].type;
		memcpy(entry->field[i].name, kind->field[i].name, strlen(kind->field[i].name));
	}
}

int ptv_kind_declare(const struct ptv_vector *vector, struct ptv_kind *kind)
{
	struct ptv_kind_entry *entries = (struct ptv_kind_entry *)((unsigned char *)vector->head + PTV_KINDS_AT);
	if (!sensible(kind))
		return -EINVAL;
	for (uint32_t i = 0; i < PTV_KINDS; i++) {
		struct ptv_kind_entry *entry = &entries[i];
		uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
		if (state == PTV_NAME_THERE && is(entry, kind))
			return remember(vector, &kind->known, i);
		if (state == PTV_NAME_FREE && claim(vector, &entry->state)) {
			write_kind(entry, kind);
			publish(&entry->state);
			return remember(vector, &kind->known, i);
		}
	}
	return -ENOSPC;
}

/* --- keys -------------------------------------------------------------------------------------------------------- */

static uint32_t hash(const char *name, size_t length)
{
	uint32_t state = 2166136261u; /* FNV-1a */
	for (size_t i = 0; i < length; i++)
		state = (state ^ (unsigned char)name[i]) * 16777619u;
	return state;
}

int ptv_key_declare(const struct ptv_vector *vector, struct ptv_key *key)
{
	struct ptv_key_entry *entries = (struct ptv_key_entry *)((unsigned char *)vector->head + PTV_KEYS_AT);
	size_t length = strlen(key->name);
	if (length >= PTV_NAME)
		return -ENAMETOOLONG;
	uint32_t first = hash(key->name, length);
	for (uint32_t i = 0; i < PTV_KEY_PROBES; i++) {
		uint32_t at = (first + i) % PTV_KEYS;
		struct ptv_key_entry *entry = &entries[at];
		uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
		if (state == PTV_NAME_THERE && entry->length == length && memcmp(entry->name, key->name, length) == 0)
			return remember(vector, &key->known, at);
		if (state == PTV_NAME_FREE && claim(vector, &entry->state)) {
			entry->length = (uint32_t)length;
			memcpy(entry->name, key->name, length);
			publish(&entry->state);
			return remember(vector, &key->known, at);
		}
	}
	return -ENOSPC;
}
