/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "programs.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local char trouble[1024];

static int keep_warning(enum libbpf_print_level level, const char *format, va_list words)
{
	if (level == LIBBPF_WARN)
		return vsnprintf(trouble, sizeof(trouble), format, words);
	return 0;
}

const char *ptw_programs_trouble(void)
{
	return trouble;
}

/* The map that holds a section of global variables; NULL when there is none. */
static struct bpf_map *section_map(struct bpf_object *object, const char *section)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, object) {
		const char *suffix = strrchr(bpf_map__name(map), '.');

		if (suffix && !strcmp(suffix, section))
			return map;
	}
	return NULL;
}

/* Find a global variable in its section's memory, checked for its size; NULL when it is not there. */
static void *variable(struct bpf_object *object, const char *section, char *memory, size_t memory_size,
		      const char *name, size_t size)
{
	const struct btf *btf = bpf_object__btf(object);
	int id = btf ? btf__find_by_name_kind(btf, section, BTF_KIND_DATASEC) : -1;
	const struct btf_type *type = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;
	const struct btf_var_secinfo *info;

	if (!memory || !type)
		return NULL;
	info = btf_var_secinfos(type);
	for (unsigned int i = 0; i < btf_vlen(type); i++) {
		const struct btf_type *one = btf__type_by_id(btf, info[i].type);

		if (strcmp(btf__name_by_offset(btf, one->name_off), name))
			continue;
		return info[i].size == size && info[i].offset + size <= memory_size ? memory + info[i].offset : NULL;
	}
	return NULL;
}

/* A constant of the programs, to be set before they are loaded. */
static void *constant(struct bpf_object *object, const char *name, size_t size)
{
	struct bpf_map *map = section_map(object, ".rodata");
	size_t memory_size = 0;
	char *memory = map ? (char *)(uintptr_t)bpf_map__initial_value(map, &memory_size) : NULL;

	return variable(object, ".rodata", memory, memory_size, name, size);
}

/* A variable of the loaded programs. */
static void *shared(const struct ptw_programs *programs, const char *name, size_t size)
{
	return variable(programs->object, ".bss", programs->shared, programs->shared_size, name, size);
}

static int configure(struct bpf_object *object, const struct ptw_programs_config *config)
{
	const char *wanted = config->raw ? "raw_" : "btf_";
	uint64_t *wake = constant(object, "cfg_wake", sizeof(*wake));
	uint32_t *namespace = constant(object, "cfg_pid_namespace", sizeof(*namespace));
	uint8_t *paths = constant(object, "cfg_path", PTW_PATHS * PTW_NUMBERS);
	struct bpf_map *ring = bpf_object__find_map_by_name(object, "ring");
	struct bpf_program *program;

	if (!wake || !namespace || !paths || !ring)
		return -ENOEXEC;
	*wake = config->wake_bytes;
	*namespace = config->pid_namespace;
	memcpy(paths, config->paths, PTW_PATHS * PTW_NUMBERS);
	bpf_object__for_each_program(program, object)
		bpf_program__set_autoload(program, !strncmp(bpf_program__name(program), wanted, strlen(wanted)));
	return bpf_map__set_max_entries(ring, config->ring_bytes);
}

static int map_variables(struct ptw_programs *programs)
{
	struct bpf_map *map = section_map(programs->object, ".bss");
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t size;
	void *memory;

	if (!map)
		return -ENOEXEC;
	size = (bpf_map__value_size(map) + page - 1) & ~(page - 1);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
	if (memory == MAP_FAILED)
		return -errno;
	(void)madvise(memory, size, MADV_DONTFORK);
	programs->shared = memory;
	programs->shared_size = size;
	return 0;
}

static int find_memory(struct ptw_programs *programs)
{
	struct bpf_map *tasks = bpf_object__find_map_by_name(programs->object, "tasks");
	int error = map_variables(programs);

	if (error)
		return error;
	programs->ring_fd = bpf_object__find_map_fd_by_name(programs->object, "ring");
	programs->counts = shared(programs, "counts", PTW_CPUS * sizeof(*programs->counts));
	programs->losses = shared(programs, "losses", sizeof(*programs->losses));
	programs->wake_pending = shared(programs, "wake_pending", sizeof(*programs->wake_pending));
	if (!programs->counts || !programs->losses || !programs->wake_pending || programs->ring_fd < 0 || !tasks ||
	    bpf_map__value_size(tasks) != sizeof(struct ptw_task))
		return -ENOEXEC;
	programs->tasks_fd = bpf_map__fd(tasks);
	return 0;
}

int ptw_programs_init(struct ptw_programs *programs, const struct ptw_programs_config *config)
{
	int error;

	*programs = (struct ptw_programs){0};
	trouble[0] = '\0';
	libbpf_set_print(keep_warning);
	programs->object = bpf_object__open_file(config->object, NULL);
	error = programs->object ? configure(programs->object, config) : -errno;
	if (!error)
		error = bpf_object__load(programs->object);
	if (!error)
		error = find_memory(programs);
	if (error)
		ptw_programs_deinit(programs);
	return error;
}

void ptw_programs_deinit(struct ptw_programs *programs)
{
	ptw_programs_detach(programs);
	if (programs->shared)
		munmap(programs->shared, programs->shared_size);
	bpf_object__close(programs->object);
	*programs = (struct ptw_programs){0};
}

int ptw_programs_attach(struct ptw_programs *programs)
{
	struct bpf_program *program;
	int error = 0;

	bpf_object__for_each_program(program, programs->object) {
		struct bpf_link *link;

		if (!bpf_program__autoload(program))
			continue;
		if (programs->link_count == PTW_LINKS) {
			error = -E2BIG;
			break;
		}
		link = bpf_program__attach(program);
		if (!link) {
			error = -errno;
			break;
		}
		programs->links[programs->link_count++] = link;
	}
	if (error)
		ptw_programs_detach(programs);
	return error;
}

void ptw_programs_detach(struct ptw_programs *programs)
{
	if (!programs->link_count)
		return;
	while (programs->link_count)
		bpf_link__destroy(programs->links[--programs->link_count]);
	/* programs run inside RCU read sections: after a grace period none is under way */
	(void)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
}
