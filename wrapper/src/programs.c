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

#include "events.h"

#define PROBE_PROGRAM "probe_hit"

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

static int set_constant(struct bpf_object *object, const char *name, const void *value, size_t size)
{
	void *place = constant(object, name, size);

	if (!place)
		return -ENOEXEC;
	memcpy(place, value, size);
	return 0;
}

static int configure(struct bpf_object *object, const struct ptw_programs_config *config)
{
	const char *wanted = config->raw ? "raw_" : "btf_";
	struct bpf_map *ring = bpf_object__find_map_by_name(object, "ring");
	struct bpf_program *program;

	if (!ring || set_constant(object, "cfg_wake", &config->wake_bytes, sizeof(config->wake_bytes)) ||
	    set_constant(object, "cfg_pid_namespace", &config->pid_namespace, sizeof(config->pid_namespace)) ||
	    set_constant(object, "cfg_all", &config->all, sizeof(config->all)) ||
	    set_constant(object, "cfg_self", &config->self, sizeof(config->self)) ||
	    set_constant(object, "cfg_capture", &config->capture, sizeof(config->capture)) ||
	    set_constant(object, "cfg_frames", &config->frames, sizeof(config->frames)) ||
	    set_constant(object, "cfg_descriptions", config->descriptions,
			 PTW_NUMBERS * sizeof(struct ptw_description)) ||
	    set_constant(object, "cfg_probes", config->probe_specs, PTW_PROBES * sizeof(struct ptw_probe_spec)))
		return -ENOEXEC;
	bpf_object__for_each_program(program, object) {
		const char *name = bpf_program__name(program);

		bpf_program__set_autoload(program, strcmp(name, PROBE_PROGRAM) ?
					  !strncmp(name, wanted, strlen(wanted)) : config->probe_count != 0);
	}
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

static int find_maps(struct ptw_programs *programs)
{
	static const char *const names[PTW_FILTERS] = {
		[PTW_FILTER_PID] = "rules_pid",		[PTW_FILTER_TID] = "rules_tid",
		[PTW_FILTER_COMM] = "rules_comm",	[PTW_FILTER_EXE] = "rules_exe",
		[PTW_FILTER_CMDLINE] = "rules_cmdline",
	};
	struct bpf_map *tasks = bpf_object__find_map_by_name(programs->object, "tasks");

	if (!tasks || bpf_map__value_size(tasks) != sizeof(struct ptw_task))
		return -ENOEXEC;
	programs->tasks_fd = bpf_map__fd(tasks);
	programs->ring_fd = bpf_object__find_map_fd_by_name(programs->object, "ring");
	programs->waiting_fd = bpf_object__find_map_fd_by_name(programs->object, "waiting");
	programs->killed_fd = bpf_object__find_map_fd_by_name(programs->object, "killed");
	if (programs->ring_fd < 0 || programs->waiting_fd < 0 || programs->killed_fd < 0)
		return -ENOEXEC;
	for (unsigned int i = 0; i < PTW_FILTERS; i++) {
		programs->rules_fd[i] = bpf_object__find_map_fd_by_name(programs->object, names[i]);
		if (programs->rules_fd[i] < 0)
			return -ENOEXEC;
	}
	return 0;
}

static int find_memory(struct ptw_programs *programs)
{
	int error = map_variables(programs);

	if (error)
		return error;
	programs->counts = shared(programs, "counts", PTW_CPUS * sizeof(*programs->counts));
	programs->losses = shared(programs, "losses", sizeof(*programs->losses));
	programs->banks = shared(programs, "banks", PTW_BANKS * sizeof(*programs->banks));
	programs->generation = shared(programs, "generation", sizeof(*programs->generation));
	programs->enabled = shared(programs, "enabled", sizeof(*programs->enabled));
	programs->waiting_tasks = shared(programs, "waiting_tasks", sizeof(*programs->waiting_tasks));
	programs->wake_pending = shared(programs, "wake_pending", sizeof(*programs->wake_pending));
	if (!programs->counts || !programs->losses || !programs->banks || !programs->generation ||
	    !programs->enabled || !programs->waiting_tasks || !programs->wake_pending)
		return -ENOEXEC;
	return find_maps(programs);
}

int ptw_programs_init(struct ptw_programs *programs, const struct ptw_programs_config *config)
{
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "ptweave");
	int error;

	*programs = (struct ptw_programs){0};
	trouble[0] = '\0';
	libbpf_set_print(keep_warning);
	programs->object = bpf_object__open_mem(config->object, config->object_size, &options);
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

static int keep_link(struct ptw_programs *programs, struct bpf_link *link)
{
	if (!link)
		return -errno;
	programs->links[programs->link_count++] = link;
	return 0;
}

static int attach_probe(struct ptw_programs *programs, const struct bpf_program *program,
			const struct ptw_probe_point *point, uint32_t number)
{
	LIBBPF_OPTS(bpf_uprobe_opts, options, .bpf_cookie = number, .ref_ctr_offset = point->semaphore,
		    .retprobe = point->at_return != 0);

	return keep_link(programs, bpf_program__attach_uprobe_opts(program, -1, point->path, point->offset, &options));
}

int ptw_programs_attach(struct ptw_programs *programs, const struct ptw_probe_point *probes, uint32_t probe_count)
{
	struct bpf_program *program;
	int error = probe_count > PTW_PROBES ? -E2BIG : 0;

	bpf_object__for_each_program(program, programs->object) {
		if (error || !bpf_program__autoload(program))
			continue;
		if (!strcmp(bpf_program__name(program), PROBE_PROGRAM)) {
			for (uint32_t i = 0; i < probe_count && !error; i++)
				error = attach_probe(programs, program, &probes[i], i);
		} else if (programs->link_count == PTW_LINKS - PTW_PROBES) {
			error = -E2BIG;
		} else {
			error = keep_link(programs, bpf_program__attach(program));
		}
	}
	if (error)
		ptw_programs_detach(programs);
	else
		__atomic_store_n(programs->enabled, 1, __ATOMIC_SEQ_CST);
	return error;
}

void ptw_programs_detach(struct ptw_programs *programs)
{
	if (!programs->link_count)
		return;
	__atomic_store_n(programs->enabled, 0, __ATOMIC_SEQ_CST);
	while (programs->link_count)
		bpf_link__destroy(programs->links[--programs->link_count]);
	/* programs run inside RCU read sections: after a grace period none is under way */
	(void)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
}
