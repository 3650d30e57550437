/* SPDX-License-Identifier: MIT */
/* Libraries loaded later; loader.h says what is guaranteed. */
#define _GNU_SOURCE
#include "loader.h"

#include "fitness.h"
#include "handshake.h"
#include "next.h"
#include "notice.h"
#include "segments.h"
#include "slots.h"
#include "touch.h"

#include <dlfcn.h>
#include <errno.h>
#include <iconv.h>
#include <string.h>

/* --- its locks --- */

enum { LOCKS = 4, SHARED_KIND = 128 /* glibc's bit for process-shared mutexes */ };

static pthread_mutex_t *locks[LOCKS];
static unsigned lock_count;

static bool is_recursive(const pthread_mutex_t *mutex) { return mutex->__data.__kind == PTHREAD_MUTEX_RECURSIVE_NP; }

static bool is_free(const pthread_mutex_t *mutex)
{
	static const pthread_mutex_t fresh = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	return memcmp(mutex, &fresh, sizeof fresh) == 0;
}

static void add(pthread_mutex_t *mutex)
{
	if (lock_count < LOCKS)
		locks[lock_count++] = mutex;
}

struct place {
	char *start;
	uint64_t size;
};

/* While libraries are iterated over, one of the locks is held, by us; its neighbours are of the same kind. */
static int find_locks(struct dl_phdr_info *info, size_t size, void *data)
{
	const struct place *globals = data;
	int tid = ptw_gettid();
	(void)info, (void)size;
	for (uint64_t at = 0; at + sizeof(pthread_mutex_t) <= globals->size; at += 8) {
		pthread_mutex_t *mutex = (pthread_mutex_t *)(globals->start + at);
		if (mutex->__data.__lock != 1 || mutex->__data.__count != 1 || mutex->__data.__owner != tid ||
		    !is_recursive(mutex))
			continue;
		add(mutex);
		for (pthread_mutex_t *before = mutex - 1; (char *)before >= globals->start && is_free(before); before--)
			add(before);
		for (pthread_mutex_t *behind = mutex + 1;
		     (char *)(behind + 1) <= globals->start + globals->size && is_free(behind); behind++)
			add(behind);
		break;
	}
	return 1;
}

int ptw_loader_init(void)
{
	static const char name[] = "_rtld_global";
	struct place globals = {dlsym(RTLD_DEFAULT, name), 0};
	const struct link_map *loader = globals.start ? ptw_next_object_at((uint64_t)globals.start) : NULL;
	if (!loader || ptw_next_in(loader, name, PTW_NEXT_HASH("_rtld_global"), &globals.size) != globals.start)
		return -ENOSYS;
	dl_iterate_phdr(find_locks, &globals);
	for (unsigned i = 0; i < lock_count; i++)
		locks[i]->__data.__kind |= SHARED_KIND;
	return lock_count ? 0 : -ENOSYS;
}

/* --- what was loaded --- */

enum { ALLOCATED = 2048, LONGEST_LIST = 16384 };

/* Since libraries were shared last; those beyond the end are only counted. */
static const struct link_map *allocated[ALLOCATED];
static uint32_t allocations;
static uint32_t depth; /* of dlopen in this process, which holds the lock meanwhile */

enum { LOADED = 1, COPIED = 2, UNKEPT = 4 };

uint32_t ptw_loader_pending;

void ptw_loader_allocated(const void *block)
{
	if (allocations < ALLOCATED)
		allocated[allocations] = block;
	allocations++;
	__atomic_fetch_or(&ptw_loader_pending, LOADED, __ATOMIC_RELAXED);
}

/* From then on it is looked at each boundary whether there is more than was seen. */
void ptw_loader_copied(void) { __atomic_fetch_or(&ptw_loader_pending, COPIED, __ATOMIC_RELAXED); }

static void give_copies_up(void)
{
	static uint64_t seen;
	uint64_t bytes = ptw_segments_bytes();
	if (bytes == seen)
		return;
	seen = bytes;
	ptw_segments_catch_up();
}

/* Did the loader allocate something since this was asked last? */
static bool take_loaded(void)
{
	return __atomic_fetch_and(&ptw_loader_pending, ~(uint32_t)LOADED, __ATOMIC_RELAXED) & LOADED;
}

bool ptw_loader_made(const struct dl_phdr_info *info)
{
	for (uint32_t i = 0; i < ALLOCATED && i < allocations; i++)
		if (allocated[i]->l_addr == info->dlpi_addr && allocated[i]->l_name == info->dlpi_name)
			return true;
	return false;
}

/* Was one of them a library, and not some other table? */
static bool loaded(void)
{
	uint32_t left = LONGEST_LIST;
	for (const struct link_map *map = _r_debug.r_map; map && left; map = map->l_next, left--)
		for (uint32_t i = 0; i < ALLOCATED && i < allocations; i++)
			if (map == allocated[i])
				return true;
	return false;
}

static void *(*next_dlopen)(const char *, int);

static void find_dlopen(void)
{
	if (!next_dlopen)
		*(void **)&next_dlopen = dlsym(RTLD_NEXT, "dlopen");
}

/* Libraries that this thread has to keep; one that is made meanwhile has a copy of the list, which is not its own. */
static const struct link_map *unkept[ALLOCATED];
static uint32_t unkept_count;
static int unkept_by;
static uint32_t kept; /* libraries, so far */

/* Is a thread in a dlopen already, in the constructor of what it loads? */
static bool is_loading(int tid)
{
	for (unsigned i = 0; i < lock_count; i++)
		if (locks[i]->__data.__owner == tid)
			return true;
	return false;
}

/* The C library unloads conversions that nobody uses, in the process of who used them last. */
static void keep_loaded(const struct link_map *map)
{
	next_dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	kept++;
}

/* Those that had to wait: whoever opens a library before its turn has its constructor run before those of what it needs. */
static void keep_those_left(void)
{
	uint32_t left = LONGEST_LIST;
	int tid = (int)ptw_gettid();
	if (tid != unkept_by)
		unkept_count = 0;
	else if (is_loading(tid))
		return;
	__atomic_fetch_and(&ptw_loader_pending, ~(uint32_t)UNKEPT, __ATOMIC_RELAXED);
	for (const struct link_map *map = _r_debug.r_map; map && left; map = map->l_next, left--)
		for (uint32_t i = 0; i < unkept_count; i++)
			if (map == unkept[i])
				keep_loaded(map);
	unkept_count = 0;
}

static void receive_strangers(void)
{
	uint32_t left = LONGEST_LIST;
	int tid = (int)ptw_gettid();
	find_dlopen();
	if (tid != unkept_by)
		unkept_count = 0;
	unkept_by = tid;
	for (const struct link_map *map = _r_debug.r_map; map && left; map = map->l_next, left--)
		for (uint32_t i = 0; i < ALLOCATED && i < allocations; i++)
			if (map == allocated[i]) {
				if (unkept_count < ALLOCATED)
					unkept[unkept_count++] = map;
				ptw_fit_late(map);
			}
	__atomic_fetch_or(&ptw_loader_pending, UNKEPT, __ATOMIC_RELAXED);
	keep_those_left();
}

static void enter(void)
{
	if (depth++ == 0)
		ptw_lock(&ptw_shared->segments_lock);
}

static void leave(void)
{
	if (--depth == 0)
		ptw_unlock(&ptw_shared->segments_lock);
}

static void share(void)
{
	if (ptw_segments_load() != 0)
		ptw_notice(PTW_NOTICE_LIMIT, NULL, "no room to share the data of a library that was loaded: each thread has its own");
	if (allocations > ALLOCATED)
		ptw_notice(PTW_NOTICE_LIMIT, NULL,
			   "more libraries than 2048 were loaded at once: of some, each thread has its own data");
	receive_strangers();
	allocations = 0;
}

void ptw_loader_share(void)
{
	if (ptw_loader_pending & COPIED)
		give_copies_up();
	if (ptw_loader_pending & UNKEPT)
		keep_those_left();
	if (!take_loaded() || !loaded())
		return;
	enter();
	share();
	leave();
}

void ptw_loader_alone(void)
{
	int tid = (int)ptw_gettid();
	for (unsigned i = 0; i < lock_count; i++) {
		if (locks[i]->__data.__owner == tid)
			continue;
		memset(locks[i], 0, sizeof *locks[i]);
		locks[i]->__data.__kind = PTHREAD_MUTEX_RECURSIVE_NP | SHARED_KIND;
	}
}

/* --- dlopen --- */

/* May who calls it matter? Only its own search path, for names that are to be searched for. */
static __attribute__((noinline)) bool depends_on_caller(const char *path, const void *caller)
{
	struct link_map *map = NULL;
	Dl_info info;
	if (!path || (strchr(path, '/') && !strchr(path, '$')))
		return false;
	if (strchr(path, '$') || !dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
		return true;
	for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_RUNPATH || entry->d_tag == DT_RPATH)
			return true;
	return false;
}

static __attribute__((noinline)) void *load(const char *path, int mode)
{
	enter();
	if (path && !ptw_segments_room() && !next_dlopen(path, mode | RTLD_NOLOAD)) {
		ptw_notice(PTW_NOTICE_LIMIT, NULL, "no room for more libraries: dlopen fails");
		path = "/dev/null/libtthread has no room for more libraries"; /* what dlerror says */
	}
	ptw_segments_catch_up(); /* what others have loaded is not to be mapped over */
	uint32_t before = kept;
	void *library = next_dlopen(path, mode);
	if (take_loaded())
		share();
	if (ptw_loader_pending & UNKEPT)
		keep_those_left();
	if (!library && kept != before) /* dlerror knows nothing of it any more */
		library = next_dlopen(path, mode);
	leave();
	return library;
}

/* A library that looks its names up in what it needs first has the C library's functions where it was to have ours: it
 * would free memory it never allocated, and nothing it does with threads would be known. */
static int in_order(int mode)
{
	if (!(mode & RTLD_DEEPBIND))
		return mode;
	ptw_notice(PTW_NOTICE_SCOPE, NULL, "RTLD_DEEPBIND is left out: libraries find the program's names before their own");
	return mode & ~RTLD_DEEPBIND;
}

/* What is to be done before, whoever calls. Returns the mode to load with. */
static __attribute__((noinline)) int prepare(const char *path, int mode, struct ptw_frame caller)
{
	find_dlopen();
	mode = in_order(mode);
	if (!ptw_process_mode)
		return mode;
	if (ptw_tracking)
		ptw_touch_string(path, &caller);
	return mode | RTLD_NODELETE;
}

/* Where it searches may depend on who it returns to: then it is jumped to. So gcc does from -O2 on where no address of
 * this function's own variables is known elsewhere: others have them, and are not inlined. */
PTW_EXPORT void *dlopen(const char *path, int mode)
{
	mode = prepare(path, mode, PTW_CALLER);
	if (!ptw_process_mode || depends_on_caller(path, (const void *)PTW_RETURNS_TO))
		return next_dlopen(path, mode);
	return load(path, mode);
}

/* --- conversions --- */

/* What it loaded is to be kept before anybody can close it. */
PTW_EXPORT iconv_t iconv_open(const char *to, const char *from)
{
	static iconv_t (*next)(const char *, const char *);
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "iconv_open");
	iconv_t result = next(to, from);
	int error = errno;
	if (ptw_process_mode && ptw_loader_pending)
		ptw_loader_share();
	errno = error;
	return result;
}
