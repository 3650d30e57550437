/* SPDX-License-Identifier: MIT */
/*
 * Patching; probe.h says what is guaranteed, probe_format.h what the plan looks like.
 *
 * No function of the C library is called while pages are being written to, and none of libtthread's but the one that
 * does it: they cannot be executed then. Nobody else runs in them: before main there is one thread, and a library that
 * the loader has just mapped is not known to anybody.
 * Where threads are processes, each that maps such a library later patches it the same way, with the trampolines at the
 * same address.
 */
#define _GNU_SOURCE
#include "probe.h"

#include "notice.h"
#include "object_file.h"
#include "places.h"
#include "probe_user.h"
#include "tag.h"
#include "unwind.h"

#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE 4096ull

enum { STEP = 1 << 20, LIBRARIES_MAX = 4096, JUMP_OPCODE = 0xe9, NOP_OPCODE = 0x90 };

/* A file of trampolines: as it is in its file, and where it was installed. */
struct patched {
	const struct ptw_probe_file *head; /* NULL: cannot be used */
	const unsigned char *file;
	uint64_t base; /* of the library; 0 with `at` 0: not installed */
	unsigned char *at;
	bool refused;
	bool seen;
};

struct ptw_probes ptw_probes;

/* Each process's own, as the patched pages are. */
static struct patched files[PTW_PROBE_FILES];

static bool failed(long result) { return result < 0 && result >= -4095; }

/* --- reading ----------------------------------------------------------------------------------------------------- */

/* A whole file, mapped; NULL none. */
static const void *map_file(const char *name, uint64_t *size)
{
	char path[sizeof ptw_probes.folder + 32];
	struct stat status;
	size_t length = strlen(name);
	if (length >= 32)
		return NULL;
	memcpy(path, ptw_probes.folder, ptw_probes.folder_length);
	path[ptw_probes.folder_length] = '/';
	memcpy(path + ptw_probes.folder_length + 1, name, length + 1);
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0, 0, 0), at = -1;
	if (fd < 0)
		return NULL;
	if (PTW_SYS(SYS_fstat, fd, &status, 0, 0, 0, 0) == 0 && status.st_size > 0 && status.st_size < PTW_PROBE_SIZE)
		at = PTW_SYS(SYS_mmap, 0, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	ptw_close((int)fd);
	*size = (uint64_t)status.st_size;
	return failed(at) ? NULL : (const void *)at;
}

static void file_name(uint32_t number, char *ret)
{
	char digits[12];
	unsigned count = 0, at = 0;
	do
		digits[count++] = (char)('0' + number % 10);
	while ((number /= 10) != 0);
	while (count)
		ret[at++] = digits[--count];
	memcpy(ret + at, ".so", 4);
}

static bool within(uint64_t at, uint64_t bytes, uint64_t size) { return at <= size && bytes <= size - at; }

static bool sound(const struct ptw_probe_file *head, uint64_t size)
{
	return head->magic == PTW_PROBE_MAGIC && head->version == PTW_PROBE_VERSION && head->loaded <= size &&
	       head->slots == PTW_PROBE_SLOTS && head->low < head->high && head->identity > 0 && head->identity <= PAGE - PTW_PROBE_AT &&
	       within(head->sites_at, (uint64_t)head->sites * sizeof(struct ptw_probe_site) + head->identity, head->loaded) &&
	       within(head->fixups_at, 4ull * head->fixups, head->loaded) &&
	       within(head->slots_at, 8ull * head->slots, head->loaded);
}

static void open_file(uint32_t number)
{
	char name[16];
	uint64_t size = 0;
	file_name(number, name);
	const unsigned char *file = map_file(name, &size);
	if (!file || size < PTW_PROBE_AT + sizeof(struct ptw_probe_file))
		return;
	const struct ptw_probe_file *head = (const struct ptw_probe_file *)(file + PTW_PROBE_AT);
	if (!sound(head, size))
		return;
	files[number].head = head;
	files[number].file = file;
}

static void *reserve(uint64_t bytes)
{
	long at = PTW_SYS(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return failed(at) ? NULL : (void *)at;
}

static bool read_plan(void)
{
	uint64_t size = 0;
	const struct ptw_plan *plan = map_file("plan", &size);
	if (!plan || size < sizeof *plan || plan->magic != PTW_PLAN_MAGIC || plan->version != PTW_PROBE_VERSION ||
	    plan->hits > PTW_PROBE_HITS || plan->files > PTW_PROBE_FILES || plan->functions > PTW_PROBE_FUNCTIONS ||
	    size != sizeof *plan + plan->hits * sizeof(struct ptw_plan_hit) +
			    plan->functions * sizeof(struct ptw_plan_function))
		return false;
	const struct ptw_plan_hit *hits = (const struct ptw_plan_hit *)(plan + 1);
	ptw_probes.action = reserve((plan->hits + 1) * sizeof *ptw_probes.action);
	if (!ptw_probes.action)
		return false;
	ptw_probes.hits = plan->hits;
	ptw_probes.files = plan->files;
	for (uint32_t i = 0; i < plan->hits; i++)
		ptw_probes.action[i].kind = hits[i].kind;
	for (uint32_t i = 0; i < plan->files; i++)
		open_file(i);
	return ptw_probe_user_begin(hits, (const struct ptw_plan_function *)(hits + plan->hits), plan->functions);
}

/* --- installing -------------------------------------------------------------------------------------------------- */

static const struct ptw_probe_site *sites_of(const struct ptw_probe_file *head, const unsigned char *file)
{
	return (const struct ptw_probe_site *)(file + head->sites_at);
}

static bool is_it(const struct patched *file, uint64_t base, uint64_t dynamic)
{
	const struct ptw_probe_file *head = file->head;
	return ptw_is_file(base, dynamic, head->low, head->high, sites_of(head, file->file) + head->sites, head->identity);
}

static unsigned char *try_at(uint64_t at, uint64_t bytes, int flags, int fd)
{
	long got = PTW_SYS(SYS_mmap, at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, fd, 0);
	if (failed(got))
		return NULL;
	if ((uint64_t)got == at)
		return (unsigned char *)got;
	PTW_SYS(SYS_munmap, got, bytes, 0, 0, 0, 0);
	return NULL;
}

/* Within reach of all of [low, high): below it where there is room, so that what grows behind a program can. */
static unsigned char *map_near(uint64_t low, uint64_t high, uint64_t bytes, int fd)
{
	const uint64_t reach = (1ull << 31) - 2 * PAGE;
	unsigned char *at;
	for (uint64_t back = bytes; low > back && high - low + back < reach; back += STEP)
		if ((at = try_at((low - back) & ~(PAGE - 1), bytes, MAP_FIXED_NOREPLACE, fd)) != NULL)
			return at;
	for (uint64_t on = reach - bytes; on > high - low + STEP; on -= STEP)
		if ((at = try_at((low + on) & ~(PAGE - 1), bytes, MAP_FIXED_NOREPLACE, fd)) != NULL)
			return at;
	return NULL;
}

/* Make what the trampolines refer to right for where they are. False: out of reach. */
static bool adjust(const struct ptw_probe_file *head, unsigned char *at, uint64_t base)
{
	int64_t moved = (int64_t)((uint64_t)at - (base + head->nominal));
	const uint32_t *fixup = (const uint32_t *)(at + head->fixups_at);
	for (uint32_t i = 0; i < head->fixups; i++) {
		int32_t field;
		if (fixup[i] > head->loaded - 4)
			return false;
		memcpy(&field, at + fixup[i], sizeof field);
		int64_t now = field - moved;
		if (now != (int32_t)now)
			return false;
		field = (int32_t)now;
		memcpy(at + fixup[i], &field, sizeof field);
	}
	uint64_t *slot = (uint64_t *)(at + head->slots_at);
	slot[PTW_SLOT_QUICK] = (uint64_t)ptw_probe_enter_quick;
	slot[PTW_SLOT_FULL] = (uint64_t)ptw_probe_enter_full;
	return true;
}

static bool unchanged(const struct ptw_probe_file *head, const struct ptw_probe_site *site, uint32_t sites, uint64_t base)
{
	for (uint32_t i = 0; i < sites; i++)
		if (site[i].address < head->low || site[i].address + site[i].size > head->high ||
		    site[i].size < PTW_PROBE_JUMP || site[i].size > PTW_PROBE_BEFORE ||
		    site[i].trampoline >= head->loaded ||
		    !ptw_same((const void *)(base + site[i].address), site[i].before, site[i].size))
			return false;
	return true;
}

/* What patches libtthread's own functions must not lie in a page with one of these: its section has pages of its own. */
#define PATCHING __attribute__((noinline, section("ptw_patching"), aligned(4096)))

static inline __attribute__((always_inline)) void write_jump(uint64_t at, uint64_t to, uint8_t size)
{
	volatile unsigned char *code = (volatile unsigned char *)at;
	uint64_t distance = to - (at + PTW_PROBE_JUMP);
	code[0] = JUMP_OPCODE;
	for (unsigned i = 0; i < 4; i++)
		code[1 + i] = (unsigned char)(distance >> 8 * i);
	for (unsigned i = PTW_PROBE_JUMP; i < size; i++)
		code[i] = NOP_OPCODE;
}

/* Pages of sites that lie together are opened together. */
static PATCHING long patch(const struct ptw_probe_site *site, uint32_t sites, uint64_t base, uint64_t trampolines)
{
	for (uint32_t i = 0; i < sites;) {
		uint64_t begin = (base + site[i].address) & ~(PAGE - 1), end = begin;
		uint32_t last = i;
		while (last < sites && ((base + site[last].address) & ~(PAGE - 1)) <= end) {
			end = (base + site[last].address + site[last].size + PAGE - 1) & ~(PAGE - 1);
			last++;
		}
		long error = PTW_SYS(SYS_mprotect, begin, end - begin, PROT_READ | PROT_WRITE, 0, 0, 0);
		if (error)
			return error;
		for (; i < last; i++)
			write_jump(base + site[i].address, trampolines + site[i].trampoline, site[i].size);
		PTW_SYS(SYS_mprotect, begin, end - begin, PROT_READ | PROT_EXEC, 0, 0, 0);
	}
	return 0;
}

static const char changed[] = "the code of a file that is probed is not what it was: it is not patched";
static const char no_room[] =
	"there is no room for trampolines within 2 GB of a file that is probed: it is not patched";

static int open_trampolines(uint32_t number)
{
	char path[sizeof ptw_probes.folder + 32];
	memcpy(path, ptw_probes.folder, ptw_probes.folder_length);
	path[ptw_probes.folder_length] = '/';
	file_name(number, path + ptw_probes.folder_length + 1);
	return (int)PTW_SYS(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
}

/* The trampolines, ready: at `at`, or with 0 wherever there is room. Returns what is wrong, or NULL. */
static const char *map_trampolines(struct patched *file, uint32_t number, uint64_t base, uint64_t at)
{
	const struct ptw_probe_file *head = file->head;
	uint64_t bytes = (head->loaded + PAGE - 1) & ~(PAGE - 1);
	int fd = open_trampolines(number);
	if (fd < 0)
		return "trampolines cannot be read: a file is not patched";
	unsigned char *got = at ? try_at(at, bytes, ptw_places_flags(at), fd)
				: map_near(base + head->low, base + head->high, bytes, fd);
	ptw_close(fd);
	if (!got)
		return no_room;
	if (!adjust(head, got, base) || PTW_SYS(SYS_mprotect, got, bytes, PROT_READ | PROT_EXEC, 0, 0, 0) != 0) {
		PTW_SYS(SYS_munmap, got, bytes, 0, 0, 0, 0);
		return "trampolines cannot be made: a file is not patched";
	}
	file->base = base;
	file->at = got;
	return NULL;
}

static void remove_trampolines(struct patched *file)
{
	PTW_SYS(SYS_munmap, file->at, file->head->loaded, 0, 0, 0, 0);
	file->at = NULL;
}

static const char *install(struct patched *file, uint32_t number, uint64_t base)
{
	const struct ptw_probe_file *head = file->head;
	const struct ptw_probe_site *site = sites_of(head, file->file);
	if (!unchanged(head, site, head->sites, base))
		return changed;
	const char *wrong = map_trampolines(file, number, base, 0);
	if (!wrong && patch(site, head->sites, base, (uint64_t)file->at) != 0) {
		remove_trampolines(file);
		wrong = "its pages cannot be written to: a file is not patched";
	}
	return wrong;
}

/* The address of each probe, for handlers: the number of the hit stands in the trampoline, behind lea. */
static void learn_addresses(const struct patched *file)
{
	const struct ptw_probe_site *site = sites_of(file->head, file->at);
	for (uint32_t i = 0; i < file->head->sites; i++) {
		const unsigned char *code = file->at + site[i].trampoline + 5;
		uint32_t hit;
		while (*code == 0x68) { /* push, call, and lea before the next */
			memcpy(&hit, code + 1, sizeof hit);
			if (hit < ptw_probes.hits)
				ptw_probes.action[hit].address = file->base + site[i].address;
			code += code[11] == 0x48 && code[15] == 0x08 ? 16 : 11;
		}
	}
}

static void refuse(struct patched *file, const char *reason)
{
	file->refused = true;
	ptw_notice(PTW_NOTICE_PROBE, NULL, reason);
}

static void consider(const struct link_map *map)
{
	uint64_t base = map->l_addr;
	for (uint32_t i = 0; i < ptw_probes.files; i++) {
		struct patched *file = &files[i];
		if (!file->head || file->refused)
			continue;
		bool is_new = !file->at && is_it(file, base, (uint64_t)map->l_ld);
		__atomic_signal_fence(__ATOMIC_SEQ_CST); /* that look at it may have mapped it here, and patched */
		if (file->at && file->base == base) {
			file->seen = true;
		} else if (is_new && !file->at && !file->refused) {
			const char *reason = install(file, i, base);
			file->seen = true;
			if (reason)
				refuse(file, reason);
			else
				learn_addresses(file);
		}
	}
}

void ptw_probes_arrived(void)
{
	uint32_t left = LIBRARIES_MAX;
	for (uint32_t i = 0; i < ptw_probes.files; i++)
		files[i].seen = false;
	for (const struct link_map *map = _r_debug.r_map; map && left; map = map->l_next, left--)
		consider(map);
	for (uint32_t i = 0; i < ptw_probes.files; i++)
		if (files[i].at && !files[i].seen) { /* the library is gone */
			remove_trampolines(&files[i]);
			ptw_unwind_forget();
		}
}

/* --- where threads are processes --------------------------------------------------------------------------------- */

struct ptw_probe_place ptw_probes_place(uint64_t base)
{
	for (uint32_t i = 0; i < ptw_probes.files; i++)
		if (files[i].at && files[i].base == base)
			return (struct ptw_probe_place){base, (uint64_t)files[i].at, i + 1};
	return (struct ptw_probe_place){0};
}

bool ptw_probes_own(uint64_t start)
{
	for (uint32_t i = 0; i < ptw_probes.files; i++)
		if (files[i].at && start - (uint64_t)files[i].at < files[i].head->loaded)
			return true;
	return false;
}

void ptw_probes_mapped(const struct ptw_probe_place *place, uint64_t start, uint64_t end)
{
	if (place->number == 0 || place->number > ptw_probes.files)
		return;
	struct patched *file = &files[place->number - 1];
	if (!file->head || file->refused || (file->at && (uint64_t)file->at != place->trampolines))
		return;
	const struct ptw_probe_site *site = sites_of(file->head, file->file);
	uint32_t first = 0, last;
	while (first < file->head->sites && place->base + site[first].address < start)
		first++;
	for (last = first; last < file->head->sites && place->base + site[last].address < end;)
		last++;
	if (first == last)
		return;
	const char *wrong = unchanged(file->head, site + first, last - first, place->base) ? NULL : changed;
	if (!wrong && !file->at) {
		wrong = map_trampolines(file, place->number - 1, place->base, place->trampolines);
		if (!wrong)
			learn_addresses(file);
	}
	if (!wrong && patch(site + first, last - first, place->base, place->trampolines) != 0)
		wrong = "pages of a library that another thread loaded cannot be written to: it is not patched here";
	if (wrong)
		refuse(file, wrong);
}

/* --- the beginning ----------------------------------------------------------------------------------------------- */

void ptw_probes_begin(void)
{
	const char *folder = getenv("PTWEAVE_PROBES");
	uint64_t mask;
	if (!folder || !*folder)
		return;
	size_t length = strlen(folder);
	if (length >= sizeof ptw_probes.folder) {
		ptw_notice(PTW_NOTICE_PROBE, NULL, "the run's path is too long: nothing is probed");
		return;
	}
	memcpy(ptw_probes.folder, folder, length + 1);
	ptw_probes.folder_length = (uint32_t)length;
	ptw_probe_enter_init();
	if (!read_plan()) {
		ptw_notice(PTW_NOTICE_PROBE, NULL, "the plan of probes cannot be used: nothing is probed");
		return;
	}
	ptw_unwind_detour = (struct ptw_unwind_detour){(uint64_t)ptw_probe_returned, ptw_probe_real};
	ptw_block_signals(&mask);
	ptw_probes_arrived();
	ptw_restore_signals(&mask);
}
