/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "filters.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Keys as the programs have them (wrapper/bpf/filter.bpf.h). */
union key {
	struct {
		uint32_t bank, id;
	} id;
	struct {
		uint64_t bank;
		char text[16];
	} comm;
	struct {
		uint64_t bank;
		char text[PTW_KEY];
	} text;
};

static size_t key_room(uint32_t filter)
{
	return filter == PTW_FILTER_COMM ? sizeof(((union key *)0)->comm.text) : PTW_KEY;
}

static int is_id(uint32_t filter)
{
	return filter == PTW_FILTER_PID || filter == PTW_FILTER_TID;
}

static uint64_t bank_of(const union key *key, uint32_t filter)
{
	return is_id(filter) ? key->id.bank : key->text.bank;
}

/* Remove a bank's rules from one map. */
static int clear(int map_fd, uint32_t filter, uint64_t bank)
{
	union key key;
	union key next;
	int more = !bpf_map_get_next_key(map_fd, NULL, &next);

	while (more) {
		key = next;
		more = !bpf_map_get_next_key(map_fd, &key, &next);
		if (bank_of(&key, filter) == bank && bpf_map_delete_elem(map_fd, &key))
			return -errno;
	}
	return 0;
}

static int insert(const struct ptw_programs *programs, const struct ptw_filter_rule *rule, uint32_t bank)
{
	const struct ptw_rule value = {.accept = rule->accept, .active = rule->active};
	union key key = {0};

	if (rule->filter >= PTW_FILTERS || (!is_id(rule->filter) && rule->size >= key_room(rule->filter)))
		return -EINVAL;
	if (is_id(rule->filter)) {
		key.id.bank = bank;
		key.id.id = rule->id;
	} else {
		key.text.bank = bank;
		memcpy(key.text.text, rule->text, rule->size);
	}
	return bpf_map_update_elem(programs->rules_fd[rule->filter], &key, &value, BPF_ANY) ? -errno : 0;
}

static int fill_bank(struct ptw_programs *programs, const struct ptw_filter_rules *rules, uint32_t bank)
{
	struct ptw_bank *to = &programs->banks[bank];
	int error;

	for (uint32_t filter = 0; filter < PTW_FILTERS; filter++) {
		error = clear(programs->rules_fd[filter], filter, bank);
		if (error)
			return error;
	}
	for (uint32_t i = 0; i < rules->count; i++) {
		error = insert(programs, &rules->rule[i], bank);
		if (error)
			return error;
	}
	to->kinds = rules->kinds;
	to->used = rules->used;
	memcpy(to->fallback, rules->fallback, sizeof(to->fallback));
	return 0;
}

int ptw_filters_set(struct ptw_programs *programs, const struct ptw_filter_rules *rules)
{
	uint32_t next = __atomic_load_n(programs->generation, __ATOMIC_RELAXED) + 1;
	int error;

	if (!next)	/* 0 means that a task is not judged yet */
		next = 2;
	/* a program that began with the rules before these may still be looking at the bank: a grace period ends it */
	(void)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	error = fill_bank(programs, rules, next % PTW_BANKS);
	if (!error)
		__atomic_store_n(programs->generation, next, __ATOMIC_SEQ_CST);
	return error;
}
