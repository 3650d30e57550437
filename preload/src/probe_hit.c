/* SPDX-License-Identifier: MIT */
/*
 * What is done at a hit. Rows go into the tags' event vector, in kinds of their own: `probe` for a bare hit, `probe call`
 * for one with more. Signal-safe, but for what the user's functions do; leaves errno alone.
 *
 * A watched return: the function's return address is exchanged for ptw_probe_returned's, the real one is kept in a table
 * of the thread. Before stacks are unwound by others (exceptions, cancellation), all are put back.
 */
#define _GNU_SOURCE
#include "log.h"
#include "probe.h"
#include "probe_user.h"
#include "tag.h"
#include "unwind.h"
#include "vector_quick.h"
#include "watch.h"

#include <errno.h>
#include <string.h>

#define TLS static __thread __attribute__((tls_model("initial-exec")))

enum { BARE_HIT, HIT = 0, ARGS, STACK, RESULT, TICKS, RETURNS = 128, ARGUMENTS = 6 };

static const struct ptv_field bare_fields[] = {{"hit", PTV_U64}};
static const struct ptv_field call_fields[] = {
	{"hit", PTV_U64}, {"args", PTV_WORDS}, {"stack", PTV_WORDS}, {"result", PTV_U64}, {"ticks", PTV_U64}};
static struct ptv_kind bare_kind = PTV_KIND("probe", bare_fields);
static struct ptv_kind call_kind = PTV_KIND("probe call", call_fields);

TLS uint32_t within; /* a handler is at work in this thread */

/* Functions whose return is watched, outermost first. */
struct watched {
	uint64_t *slot; /* where the return address stands */
	uint64_t real;
	uint64_t began;
	uint32_t hit;
};

TLS struct watched watched[RETURNS];
TLS uint32_t watched_count;

/* --- the quick way ----------------------------------------------------------------------------------------------- */

PTV_QUICK bool ptw_probe_quick(uint32_t hit)
{
	return !within && ptv_log_word(&ptw_tag_producer, &bare_kind, hit);
}

/* --- the full way ------------------------------------------------------------------------------------------------ */

/* The stack pointer before the trampoline. */
static uint64_t stack_pointer(const struct ptw_probe_frame *frame)
{
	return (uint64_t)(frame + 1) + PTW_RED_ZONE;
}

static void log_bare(struct ptv_producer *producer, uint64_t hit)
{
	struct ptv_event event;
	if (ptv_begin(producer, &bare_kind, &event) != 0)
		return;
	ptv_set_u64(&event, BARE_HIT, hit);
	ptv_commit(&event);
}

static void log_args(struct ptv_producer *producer, const struct ptw_probe_frame *frame)
{
	const uint64_t args[ARGUMENTS] = {frame->rdi, frame->rsi, frame->rdx, frame->rcx, frame->r8, frame->r9};
	struct ptv_event event;
	if (ptv_begin(producer, &call_kind, &event) != 0)
		return;
	ptv_set_u64(&event, HIT, frame->hit);
	ptv_set_words(&event, ARGS, args, ARGUMENTS);
	ptv_commit(&event);
}

static void set_stack(struct ptv_event *event, const struct ptw_probe_frame *frame, uint64_t address)
{
	/* the instruction itself: a return address lies behind its call */
	struct ptw_frame from = {address + 1, stack_pointer(frame), frame->rbp, frame->rbx, true};
	uint64_t stack[PTW_MAX_FRAMES];
	ptv_set_words(event, STACK, stack, ptw_unwind(&from, ptw_self.top, stack, PTW_MAX_FRAMES));
}

static void log_stack(struct ptv_producer *producer, const struct ptw_probe_frame *frame)
{
	struct ptv_event event;
	if (ptv_begin(producer, &call_kind, &event) != 0)
		return;
	ptv_set_u64(&event, HIT, frame->hit);
	set_stack(&event, frame, ptw_probes.action[frame->hit].address);
	ptv_commit(&event);
}

/* Those that are deeper than a new one were left without returning, unless they are on another stack. */
static void forget_left(const uint64_t *slot)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < watched_count; i++)
		if (watched[i].slot > slot)
			watched[kept++] = watched[i];
	watched_count = kept;
}

static void watch_return(struct ptv_producer *producer, const struct ptw_probe_frame *frame)
{
	uint64_t *slot = (uint64_t *)stack_pointer(frame);
	if (watched_count == RETURNS)
		forget_left(slot);
	if (watched_count == RETURNS) {
		ptv_count_drop(producer->vector, PTV_DROP_NESTED);
		return;
	}
	watched[watched_count] = (struct watched){slot, *slot, ptw_tsc(), (uint32_t)frame->hit};
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	watched_count++;
	*slot = (uint64_t)ptw_probe_returned;
}

static int find_watched(const uint64_t *slot)
{
	for (int i = (int)watched_count - 1; i >= 0; i--)
		if (watched[i].slot == slot)
			return i;
	return -1;
}

uint64_t ptw_probe_real(uint64_t slot)
{
	int at = find_watched((const uint64_t *)slot);
	return at < 0 ? 0 : watched[at].real;
}

static void unwatch_all(void)
{
	while (watched_count > 0) {
		const struct watched *one = &watched[--watched_count];
		if (*one->slot == (uint64_t)ptw_probe_returned)
			*one->slot = one->real;
	}
}

uint64_t ptw_probe_leave(const struct ptw_probe_frame *frame)
{
	uint64_t now = ptw_tsc();
	int at = find_watched((const uint64_t *)(frame + 1)), error = errno;
	if (at < 0) /* nobody knows where to: the stack was overwritten, or it is another thread's */
		__builtin_trap();
	struct watched one = watched[at];
	memmove(&watched[at], &watched[at + 1], (watched_count - (uint32_t)at - 1) * sizeof one);
	watched_count--;
	struct ptv_producer *producer = within ? NULL : ptw_tag_ready();
	struct ptv_event event;
	within++;
	if (producer && ptv_begin(producer, &call_kind, &event) == 0) {
		ptv_set_u64(&event, HIT, one.hit);
		ptv_set_u64(&event, RESULT, frame->rax);
		if (ptw_probes.action[one.hit].kind == PTW_PROBE_TIME)
			ptv_set_u64(&event, TICKS, now - one.began);
		ptv_commit(&event);
	}
	within--;
	errno = error;
	return one.real;
}

static void registers_of(const struct ptw_probe_frame *f, uint64_t address, struct ptweave_registers *ret)
{
	*ret = (struct ptweave_registers){
		.rax = f->rax, .rbx = f->rbx, .rcx = f->rcx, .rdx = f->rdx, .rsi = f->rsi, .rdi = f->rdi,
		.rbp = f->rbp, .rsp = stack_pointer(f), .r8 = f->r8, .r9 = f->r9, .r10 = f->r10, .r11 = f->r11,
		.r12 = f->r12, .r13 = f->r13, .r14 = f->r14, .r15 = f->r15, .rip = address, .rflags = f->rflags};
}

struct user_hit {
	struct ptweave_hit hit; /* first: what the user's function gets */
	struct ptv_event event;
	const struct ptw_probe_frame *frame;
	bool skipped;
};

static void user_add(struct ptweave_hit *hit, const char *key, int type, unsigned long number, const void *data)
{
	struct user_hit *user = (struct user_hit *)hit;
	struct ptv_key made = PTV_KEY(key);
	ptv_add(&user->event, &made, (enum ptv_type)type, number, data);
}

static void user_stack(struct ptweave_hit *hit)
{
	struct user_hit *user = (struct user_hit *)hit;
	set_stack(&user->event, user->frame, hit->registers->rip);
}

static void user_skip(struct ptweave_hit *hit) { ((struct user_hit *)hit)->skipped = true; }

static const struct ptweave_probe_calls user_calls = {user_add, user_stack, user_skip};

static void call_user(struct ptv_producer *producer, const struct ptw_probe_frame *frame)
{
	const struct ptw_probe_action *action = &ptw_probes.action[frame->hit];
	struct ptweave_registers registers;
	struct user_hit user = {.hit = {&registers, &user_calls}, .frame = frame};
	registers_of(frame, action->address, &registers);
	if (ptv_begin(producer, &call_kind, &user.event) != 0)
		return;
	ptv_set_u64(&user.event, HIT, frame->hit);
	if (!ptw_probe_guarded(action->function, &user.hit)) {
		ptw_probe_crashed((uint32_t)frame->hit);
		ptv_add_string(&user.event, &(struct ptv_key)PTV_KEY("ptweave"), "the handler crashed", 19);
	}
	if (user.skipped)
		ptv_cancel(&user.event);
	else
		ptv_commit(&user.event);
}

static void act(struct ptv_producer *producer, const struct ptw_probe_frame *frame)
{
	switch (ptw_probes.action[frame->hit].kind) {
	case PTW_PROBE_LOG:
		log_bare(producer, frame->hit);
		break;
	case PTW_PROBE_ARGS:
		log_args(producer, frame);
		break;
	case PTW_PROBE_STACK:
		log_stack(producer, frame);
		break;
	case PTW_PROBE_TIME:
	case PTW_PROBE_RETURN:
		watch_return(producer, frame);
		break;
	case PTW_PROBE_USER:
		call_user(producer, frame);
		break;
	default:
		break;
	}
}

void ptw_probe_hit(struct ptw_probe_frame *frame)
{
	int error = errno;
	uint32_t kind = frame->hit < ptw_probes.hits ? ptw_probes.action[frame->hit].kind : 0;
	struct ptv_producer *producer;
	if (kind == PTW_PROBE_ARRIVAL) {
		within++;
		ptw_probes_arrived();
		ptw_watches_arrived();
		within--;
	} else if (kind == PTW_PROBE_UNWIND) {
		unwatch_all();
	} else if (kind && (producer = ptw_tag_ready()) != NULL) {
		if (within) {
			ptv_count_drop(producer->vector, PTV_DROP_NESTED);
		} else {
			within++;
			act(producer, frame);
			within--;
		}
	}
	errno = error;
}
