/* SPDX-License-Identifier: MIT */
/*
 * What the loader mapped; fitness.h says what for.
 *
 * Imports are read from the relocations: that is where each of them is, however the symbol table was laid out. The C
 * library makes threads for itself only, and the C++ library for whoever calls std::thread, so theirs do not count.
 */
#define _GNU_SOURCE
#include "fitness.h"

#include "next.h"
#include "notice.h"
#include "openmp.h"
#include "options.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

static const char *const makers[] = {"pthread_create", "thrd_create", "_ZNSt6thread15_M_start_thread"};

/* Libraries that a program cannot have and be carried. */
static const struct {
	const char *name, *why;
} strangers[] = {
	{"libjli", "the Java virtual machine protects and polls memory by itself: threads stay threads"},
	{"libjvm", "the Java virtual machine protects and polls memory by itself: threads stay threads"},
	{"libasan", "the address sanitizer has memory of its own for every address: threads stay threads"},
	{"libhwasan", "the address sanitizer has memory of its own for every address: threads stay threads"},
	{"libtsan", "the thread sanitizer follows threads by itself: threads stay threads"},
	{"liblsan", "the leak sanitizer stops threads by itself: threads stay threads"},
	{"libgo", "the Go runtime makes threads and waits for them by itself: threads stay threads"},
	{"liburing", "io_uring has the kernel work on memory by itself: threads stay threads"},
	{"libgomp", "GCC's OpenMP waits for threads by system calls of its own: threads stay threads"},
	{"libomp", "LLVM's OpenMP has its threads wait for what atomics alone order: threads stay threads"},
	{"libiomp5", "Intel's OpenMP has its threads wait for what atomics alone order: threads stay threads"},
	{"libitm", "GCC's transactions wait for threads by system calls of their own: threads stay threads"},
};

/* Runtimes that programs are linked with or are, by what they export. */
#define EXPORTED(name) name, PTW_NEXT_HASH(name)
static const struct {
	const char *name;
	uint32_t hash;
	const char *why;
} runtimes[] = {
	{EXPORTED("mono_jit_init"), "Mono must have memory below 2 GiB: threads stay threads"},
	{EXPORTED("gc_stop_the_world"),
	 "SBCL must have its heap where it says, and moves what is in it by itself: threads stay threads"},
};

/* Functions that the C library does in threads of its own, which it makes unseen and with all signals blocked: a page that
 * is closed to them is EFAULT, or the program's end. */
static const char *const helped[] = {"aio_read", "aio_write", "aio_fsync", "lio_listio", "getaddrinfo_a"};

enum verdict { UNKNOWN = 0, FIT, ALONE, UNFIT };

struct view {
	bool makes_threads;
	bool first;      /* the executable comes first */
	const char *why; /* it cannot be carried */
};

/* What an object's dynamic section says. */
struct imports {
	const ElfW(Sym) *symbols;
	const char *strings;
	const ElfW(Rela) *table[2];
	uint64_t size[2], relative;
	struct link_map object;
};

static bool starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static struct imports imports_of(const struct dl_phdr_info *info)
{
	struct imports found = {0};
	const ElfW(Dyn) *entry = NULL;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	found.object = (struct link_map){.l_addr = info->dlpi_addr, .l_ld = (ElfW(Dyn) *)entry};
	for (; entry && entry->d_tag != DT_NULL; entry++) {
		/* the loader has made addresses of most offsets */
		uint64_t value = entry->d_un.d_val, address = value < info->dlpi_addr ? value + info->dlpi_addr : value;
		switch (entry->d_tag) {
		case DT_SYMTAB:
			found.symbols = (const ElfW(Sym) *)address;
			break;
		case DT_STRTAB:
			found.strings = (const char *)address;
			break;
		case DT_RELA:
			found.table[0] = (const ElfW(Rela) *)address;
			break;
		case DT_RELASZ:
			found.size[0] = value;
			break;
		case DT_RELACOUNT:
			found.relative = value;
			break;
		case DT_JMPREL:
			found.table[1] = (const ElfW(Rela) *)address;
			break;
		case DT_PLTRELSZ:
			found.size[1] = value;
			break;
		default:
			break;
		}
	}
	return found;
}

/* With "64" behind it where files are large by definition. */
static bool is_helped(const char *name)
{
	for (unsigned i = 0; i < sizeof helped / sizeof *helped; i++) {
		const char *rest = name + strlen(helped[i]);
		if (starts(name, helped[i]) && (!*rest || strcmp(rest, "64") == 0))
			return true;
	}
	return false;
}

static void look_at(const char *name, struct view *view)
{
	for (unsigned i = 0; i < sizeof makers / sizeof *makers; i++)
		view->makes_threads = view->makes_threads || starts(name, makers[i]);
	if (is_helped(name))
		view->why = "the C library works for it in threads of its own (aio, getaddrinfo_a): threads stay threads";
	if (view->first && strcmp(name, "ptrace") == 0)
		view->why = "it traces others (ptrace), which must be done by one thread: threads stay threads";
}

static void look_at_imports(const struct dl_phdr_info *info, struct view *view)
{
	struct imports imports = imports_of(info);
	if (!imports.symbols || !imports.strings)
		return;
	for (unsigned i = 0; i < sizeof runtimes / sizeof *runtimes; i++)
		if (ptw_next_in(&imports.object, runtimes[i].name, runtimes[i].hash, NULL))
			view->why = runtimes[i].why;
	for (unsigned which = 0; which < 2; which++) {
		const ElfW(Rela) *table = imports.table[which];
		uint64_t count = table ? imports.size[which] / sizeof *table : 0;
		for (uint64_t i = which == 0 ? imports.relative : 0; i < count; i++) {
			const ElfW(Sym) *symbol = &imports.symbols[ELF64_R_SYM(table[i].r_info)];
			/* a weak one asks whether the program has threads (libselinux) */
			if (symbol->st_name && symbol->st_shndx == SHN_UNDEF && ELF64_ST_BIND(symbol->st_info) != STB_WEAK)
				look_at(imports.strings + symbol->st_name, view);
		}
	}
}

static uint64_t padded(uint64_t size) { return (size + 3) & ~3ull; }

/* The Go linker's note; its runtime makes threads and waits for them by itself. */
static bool is_go(const struct dl_phdr_info *info)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		const char *start = (const char *)(info->dlpi_addr + part->p_vaddr);
		for (uint64_t at = 0; part->p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) + 4 <= part->p_memsz;) {
			const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(start + at);
			if (note->n_namesz == 4 && memcmp(note + 1, "Go", 3) == 0)
				return true;
			at += sizeof *note + padded(note->n_namesz) + padded(note->n_descsz);
		}
	}
	return false;
}

static bool is_runtime(const struct dl_phdr_info *info)
{
	static const char *const names[] = {"/libc.so.6", "/libstdc++.so.6", "/libpthread.so.0", "/libtthread.so"};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (strstr(info->dlpi_name, names[i]))
			return true;
	/* an executable may lie at no base, and engines may leave such entries out */
	return info->dlpi_addr && (info->dlpi_addr == getauxval(AT_BASE) || info->dlpi_addr == getauxval(AT_SYSINFO_EHDR));
}

bool ptw_is_called(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
	const char *rest = file + strlen(name);
	return starts(file, name) && (starts(rest, ".so") || starts(rest, "-"));
}

/* NULL: a library like others. */
static const char *why_strange(const char *path)
{
	for (unsigned i = 0; i < sizeof strangers / sizeof *strangers; i++)
		if (ptw_is_called(path, strangers[i].name))
			return strangers[i].why;
	return NULL;
}

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
	struct view *view = data;
	const char *why = why_strange(info->dlpi_name);
	(void)size;
	if (why && !ptw_openmp_share(info))
		view->why = why;
	if (is_go(info))
		view->why = "the Go runtime makes threads and waits for them by itself: threads stay threads";
	if (!is_runtime(info))
		look_at_imports(info, view);
	view->first = false;
	return 0;
}

static enum verdict judge(void)
{
	struct view view = {.first = true};
	if (!ptw_options()->process)
		return ALONE;
	dl_iterate_phdr(look, &view);
	if (!view.makes_threads)
		return ALONE;
	if (view.why)
		ptw_notice(PTW_NOTICE_FALLBACK, NULL, view.why);
	return view.why ? UNFIT : FIT;
}

static uint32_t verdict;

bool ptw_fit(void)
{
	uint32_t now = __atomic_load_n(&verdict, __ATOMIC_ACQUIRE);
	if (__builtin_expect(now == UNKNOWN, 0)) {
		now = judge();
		__atomic_store_n(&verdict, now, __ATOMIC_RELEASE);
	}
	return now == FIT;
}

void ptw_fit_surprise(const void *code)
{
	static uint32_t said;
	bool alone = !ptw_fit() && __atomic_load_n(&verdict, __ATOMIC_ACQUIRE) == ALONE;
	if (alone && ptw_options()->process && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
		ptw_notice(PTW_NOTICE_FALLBACK, code,
			   "threads are made by what was loaded or looked up while the program ran: they stay threads");
}

void ptw_fit_late(const struct link_map *map)
{
	if (why_strange(map->l_name) && !ptw_openmp_share_late(map))
		ptw_notice(PTW_NOTICE_CALL, map->l_ld,
			   "a library that threads as processes cannot carry was loaded while the program ran: its threads may"
			   " wait for ever");
}
