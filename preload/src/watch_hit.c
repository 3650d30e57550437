/* SPDX-License-Identifier: MIT */
/*
 * Hits of watchpoints. Rows go into the tags' event vector, kind `watch`.
 *
 * What was last seen is in memory that all processes of the program share, exchanged word by word: of two threads that
 * write at once, each finds what the other left, or what was there before both.
 */
#define _GNU_SOURCE
#include "watch_hit.h"

#include "alias.h"
#include "control.h"
#include "handlers.h"
#include "instructions.h"
#include "process.h"
#include "real.h"
#include "tag.h"
#include "unwind.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <ucontext.h>

enum { TRAP_OF_PERF = 6, OF_BREAKPOINT = 5, CAME_LATE = 1, WORDS = PTW_WATCH_BYTES / 8, REGISTERS = 18, READ_BIT = 16,
       INT1 = 0xf1 };
enum { NUMBER, ACCESS, IP, NEXT, OLD, NEW, STACK, REGISTER, LATE };

static const struct ptv_field fields[] = {
	{"watch", PTV_U64}, {"access", PTV_U64}, {"ip", PTV_U64}, {"next", PTV_U64}, {"old", PTV_BYTES},
	{"new", PTV_BYTES}, {"stack", PTV_WORDS}, {"registers", PTV_WORDS}, {"late", PTV_U64}};
static struct ptv_kind kind = PTV_KIND("watch", fields);

/* The kernel's siginfo of a perf event (since Linux 5.13). */
struct trap {
	int signal, error, code, zero;
	uint64_t address;
	uint64_t data;
	uint32_t type;
	uint32_t flags;
};

struct seen {
	uint64_t address;
	uint32_t length, mode;
	uint64_t known; /* `last` is right */
	uint64_t last[WORDS];
};

enum { SEEN_BYTES = 4096 };
static struct seen *seen;
static uint32_t watches;
_Static_assert(sizeof(struct seen) * PTW_WATCHES <= SEEN_BYTES, "they fit into a page");

static long map_seen(void *at)
{
	return PTW_SYS(SYS_mmap, at, SEEN_BYTES, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
}

bool ptw_watch_hits_init(uint32_t count)
{
	long at = map_seen(NULL);
	if (at < 0 && at >= -4095)
		return false;
	seen = (struct seen *)at;
	watches = count;
	return true;
}

void ptw_watch_hits_forked(void)
{
	struct seen copy[PTW_WATCHES];
	if (!seen)
		return;
	memcpy(copy, seen, sizeof copy);
	long at = map_seen(seen);
	if (at < 0 && at >= -4095)
		return; /* shared with the parent: values may be its */
	memcpy(seen, copy, sizeof copy);
}

/* --- values ------------------------------------------------------------------------------------------------------ */

/* The kernel reads it, through a mapping of its own: no watchpoint is hit. A page that is closed to this thread is read
 * where it is always open. */
static bool read_memory(uint64_t address, uint32_t length, uint64_t ret[WORDS])
{
	struct iovec to = {ret, length}, from = {(void *)address, length};
	memset(ret, 0, PTW_WATCH_BYTES);
	if (PTW_SYS(SYS_process_vm_readv, ptw_getpid(), &to, 1, &from, 1, 0) == (long)length)
		return true;
	if (!ptw_process_mode || ptw_private)
		return false;
	const void *alias = ptw_alias_of((const void *)address);
	if ((uint64_t)alias == address)
		return false;
	memcpy(ret, alias, length);
	return true;
}

void ptw_watch_hits_expect(uint32_t number, const struct ptw_watched_range *range)
{
	struct seen *one = &seen[number];
	one->address = range->address;
	one->mode = (uint32_t)range->mode;
	one->known = read_memory(one->address, (uint32_t)range->length, one->last);
	__atomic_store_n(&one->length, (uint32_t)range->length, __ATOMIC_RELEASE);
}

void ptw_watch_hits_gone(uint32_t number)
{
	seen[number].known = 0;
	__atomic_store_n(&seen[number].length, 0, __ATOMIC_RELEASE);
}

struct ptw_watched_range ptw_watch_hits_at(uint32_t number)
{
	uint32_t length = __atomic_load_n(&seen[number].length, __ATOMIC_ACQUIRE);
	return (struct ptw_watched_range){seen[number].address, length, seen[number].mode};
}

/* What is there now, for what was there; true: it was known. */
static bool exchange(struct seen *one, const uint64_t now[WORDS], uint64_t before[WORDS])
{
	for (uint32_t i = 0; i < (one->length + 7) / 8; i++)
		before[i] = __atomic_exchange_n(&one->last[i], now[i], __ATOMIC_ACQ_REL);
	return __atomic_exchange_n(&one->known, 1, __ATOMIC_ACQ_REL);
}

/* --- the event --------------------------------------------------------------------------------------------------- */

struct hit {
	uint32_t number;
	enum ptw_watch_access access;
	uint64_t ip; /* 0: the instruction before `next` */
	bool late;
};

/* Behind the instruction, as a return address is behind its call. */
static void set_stack(struct ptv_event *event, const struct hit *hit, const greg_t *registers)
{
	uint64_t next = (uint64_t)registers[REG_RIP], stack[PTW_MAX_FRAMES];
	struct ptw_frame from = {next + 1, (uint64_t)registers[REG_RSP], (uint64_t)registers[REG_RBP],
				 (uint64_t)registers[REG_RBX], true};
	uint32_t count = (uint32_t)ptw_unwind(&from, ptw_self.top, stack, PTW_MAX_FRAMES);
	if (count > 0)
		stack[0] = hit->ip ? hit->ip + 1 : next;
	ptv_set_words(event, STACK, stack, count);
}

static void set_registers(struct ptv_event *event, const greg_t *r)
{
	static const unsigned char order[REGISTERS] = {
		REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
		REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP, REG_EFL};
	uint64_t values[REGISTERS];
	for (unsigned i = 0; i < REGISTERS; i++)
		values[i] = (uint64_t)r[order[i]];
	ptv_set_words(event, REGISTER, values, REGISTERS);
}

extern const char __ehdr_start[] PTW_HIDDEN, etext[] PTW_HIDDEN; /* the linker's: where this library's code lies */

static bool of_libtthread(uint64_t code) { return code - (uint64_t)__ehdr_start < (uint64_t)(etext - __ehdr_start); }

/* Where threads are processes the program cannot block SIGTRAP: what comes late was done in libtthread, or in the C library
 * where it blocks all signals. */
static bool is_own(const struct hit *hit, uint64_t next)
{
	return hit->late ? ptw_process_mode : of_libtthread(hit->ip ? hit->ip : next);
}

static void log_hit(struct ptv_producer *producer, struct hit *hit, const greg_t *registers)
{
	struct seen *one = &seen[hit->number];
	uint64_t now[WORDS], before[WORDS] = {0};
	struct ptv_event event;
	bool readable = read_memory(one->address, one->length, now);
	bool known = readable && exchange(one, now, before);
	bool shown = !is_own(hit, (uint64_t)registers[REG_RIP]);
	if (hit->access == PTW_TOUCHED && known && memcmp(before, now, one->length) != 0)
		hit->access = one->mode == PTW_WATCH_READ ? PTW_NOT_ASKED_FOR : PTW_HAS_WRITTEN;
	if (!shown)
		hit->access = PTW_BY_LIBTTHREAD;
	shown = shown && hit->access != PTW_NOT_ASKED_FOR;
	if (ptv_begin(producer, &kind, &event) != 0)
		return;
	ptv_set_u64(&event, NUMBER, hit->number);
	ptv_set_u64(&event, ACCESS, hit->access);
	if (shown) {
		ptv_set_u64(&event, LATE, hit->late);
		ptv_set_u64(&event, NEXT, (uint64_t)registers[REG_RIP]);
		if (hit->ip)
			ptv_set_u64(&event, IP, hit->ip);
		if (known)
			ptv_set_data(&event, OLD, before, one->length);
		if (readable)
			ptv_set_data(&event, NEW, now, one->length);
		set_stack(&event, hit, registers);
		set_registers(&event, registers);
	}
	ptv_commit(&event);
}

static void by_processor(struct ptv_producer *producer, const struct trap *trap, const greg_t *registers)
{
	uint32_t number = (uint32_t)trap->data;
	if (number >= watches)
		return;
	struct hit hit = {number, seen[number].mode == PTW_WATCH_WRITE ? PTW_HAS_WRITTEN : PTW_TOUCHED, 0,
			  trap->flags & CAME_LATE};
	log_hit(producer, &hit, registers);
}

static void by_engine(struct ptv_producer *producer, const struct trap *trap, const greg_t *registers)
{
	for (uint32_t i = 0; i < watches; i++) {
		bool written = trap->data >> i & 1, read = trap->data >> (READ_BIT + i) & 1;
		struct hit hit = {i, (enum ptw_watch_access)(written * PTW_HAS_WRITTEN + read * PTW_HAS_READ), trap->address,
				  false};
		if (written || read)
			log_hit(producer, &hit, registers);
	}
}

/* The kernel takes a debug exception for which the processor gives no reason (DR6 is 0) for the instruction int1. On a
 * virtual machine the reason gets lost now and then, one time in some 100,000: where there is no int1, it was a watchpoint. */
static bool is_nameless(const struct trap *trap, const greg_t *registers)
{
	uint64_t next = (uint64_t)registers[REG_RIP];
	return trap->code == TRAP_BRKPT && trap->address == next && *(const unsigned char *)(next - 1) != INT1;
}

/* That of the values that changed; the only one; or one that is counted as nobody's. */
static void by_nobody(struct ptv_producer *producer, const greg_t *registers)
{
	struct ptv_event event;
	uint32_t logged = 0;
	for (uint32_t i = 0; i < watches; i++) {
		uint64_t now[WORDS];
		bool changed = read_memory(seen[i].address, seen[i].length, now) &&
			       memcmp(now, seen[i].last, seen[i].length) != 0;
		struct hit hit = {i, seen[i].mode == PTW_WATCH_WRITE ? PTW_HAS_WRITTEN : PTW_TOUCHED, 0, false};
		if (seen[i].length == 0 || (!changed && watches > 1))
			continue;
		log_hit(producer, &hit, registers);
		logged++;
	}
	if (!logged && ptv_begin(producer, &kind, &event) == 0) {
		ptv_set_u64(&event, NUMBER, watches);
		ptv_commit(&event);
	}
}

/* --- the signal -------------------------------------------------------------------------------------------------- */

static struct sigaction program; /* what the program wants of SIGTRAP, where threads are threads */

static void pass_on_natively(int signal, siginfo_t *info, ucontext_t *context)
{
	struct sigaction action = program;
	if (action.sa_handler == SIG_IGN && info->si_code <= 0)
		return;
	if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
		uint64_t bit = 1ull << (SIGTRAP - 1);
		ptw_install(signal, 0, 0, 0);
		PTW_SYS(SYS_tgkill, ptw_getpid(), ptw_gettid(), signal, 0, 0, 0);
		PTW_SYS(SYS_rt_sigprocmask, SIG_UNBLOCK, &bit, 0, sizeof bit, 0, 0);
		return;
	}
	uint64_t mask = *(const uint64_t *)&context->uc_sigmask | *(const uint64_t *)&action.sa_mask;
	mask = ptw_watch_mask(mask);
	if (action.sa_flags & SA_RESETHAND)
		program.sa_handler = SIG_DFL;
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, sizeof mask, 0, 0);
	if (action.sa_flags & SA_SIGINFO)
		action.sa_sigaction(signal, info, context);
	else
		action.sa_handler(signal);
}

static void pass_on(int signal, siginfo_t *info, ucontext_t *context)
{
	if (!ptw_process_mode) {
		pass_on_natively(signal, info, context);
		return;
	}
	uint64_t mask = *(const uint64_t *)&context->uc_sigmask & ~ptw_unblockable();
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, sizeof mask, 0, 0);
	ptw_on_signal(signal, info, context);
}

static void on_trap(int signal, siginfo_t *info, void *data)
{
	const struct trap *trap = (const struct trap *)info;
	ucontext_t *context = data;
	uint64_t by = trap->data & PTW_WATCH_BY;
	int error = errno;
	bool nameless = is_nameless(trap, context->uc_mcontext.gregs);
	if (!nameless && (trap->code != TRAP_OF_PERF || trap->type != OF_BREAKPOINT ||
	    (by != PTW_WATCH_BY_PROCESSOR && by != PTW_WATCH_BY_ENGINE))) {
		pass_on(signal, info, context);
		return;
	}
	struct ptv_producer *producer = ptw_tag_ready();
	if (producer && nameless)
		by_nobody(producer, context->uc_mcontext.gregs);
	else if (producer && by == PTW_WATCH_BY_PROCESSOR)
		by_processor(producer, trap, context->uc_mcontext.gregs);
	else if (producer)
		by_engine(producer, trap, context->uc_mcontext.gregs);
	errno = error;
}

void ptw_watch_catch(void)
{
	GLIBC(sigaction)(SIGTRAP, NULL, &program);
	ptw_install(SIGTRAP, (uint64_t)on_trap, SA_SIGINFO | SA_ONSTACK | SA_RESTART, PTW_ALL_BUT_FAULTS);
}

const struct sigaction *ptw_watch_programs(void) { return &program; }

bool ptw_watch_sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
	if (!ptw_watching || signal != SIGTRAP)
		return false;
	struct sigaction before = program;
	if (action)
		program = *action;
	if (old)
		*old = before;
	return true;
}
