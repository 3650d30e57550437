/* SPDX-License-Identifier: MIT */
/* Call stacks; unwind.h says what is guaranteed. */
#define _GNU_SOURCE
#include "unwind.h"

#include "layout.h"

#include <stddef.h>
#include <string.h>
#include <ucontext.h>

enum {
	CACHE = 1 << 13,
	GREATEST_STACK = 1 << 30, /* a stack pointer further below `top` is on another stack */
};

/* Two words, read and written without a lock: `check` is address ^ rule, so a torn pair does not match. */
struct entry {
	uint64_t check;
	uint64_t rule;
};

static struct entry cache[CACHE];
_Static_assert(sizeof cache <= PTW_META_RULES_SIZE, "rules fit their place");

/* What is known to all processes; `cache`, until there is more than one. Where each has libraries of its own, rules are
 * its own, too: in `own_size` bytes from `own_from` on. */
static struct entry *common = cache;
static uint64_t own_from, own_size;

void ptw_unwind_share(uint64_t from, uint64_t size)
{
	own_from = from;
	own_size = size;
	common = (struct entry *)PTW_META_RULES;
}

static inline struct entry *entry_of(uint64_t pc)
{
	uint64_t at = (pc * 0x9e3779b97f4a7c15ull) >> 51;
	return (pc - own_from < own_size ? cache : common) + at;
}

static __attribute__((noinline)) struct ptw_rule learn(uint64_t pc, struct entry *entry)
{
	struct ptw_rule rule = ptw_cfi_find(pc);
	uint64_t word;
	memcpy(&word, &rule, sizeof word);
	__atomic_store_n(&entry->check, pc ^ word, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->rule, word, __ATOMIC_RELAXED);
	return rule;
}

static inline struct ptw_rule rule_of(uint64_t pc)
{
	struct entry *entry = entry_of(pc);
	struct ptw_rule rule;
	uint64_t word;
	_Static_assert(sizeof rule == sizeof word, "a rule is a word");
	word = __atomic_load_n(&entry->rule, __ATOMIC_RELAXED);
	if ((__atomic_load_n(&entry->check, __ATOMIC_RELAXED) ^ word) == pc) {
		memcpy(&rule, &word, sizeof rule);
		return rule;
	}
	return learn(pc, entry);
}

static void forget(struct entry *entries)
{
	for (unsigned i = 0; i < CACHE; i++) {
		__atomic_store_n(&entries[i].check, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&entries[i].rule, 0, __ATOMIC_RELAXED);
	}
}

void ptw_unwind_forget(void)
{
	forget(common);
	if (common != cache)
		forget(cache);
}

struct ptw_unwind_detour ptw_unwind_detour = {.address = ~0ull};

struct walk {
	uint64_t pc, sp, bp;
	uint64_t bx;  /* where it is known, which it is only when it is followed */
	bool bx_known;
	bool bx_wanted; /* a frame can be left by it alone */
	uint64_t top; /* of the stack we are on; UINT64_MAX unknown */
};

/* Read a word of the stack: above the stack pointer only, below its end. */
static bool peek(const struct walk *w, uint64_t address, uint64_t *ret)
{
	if (address < w->sp || address > w->top - 8 || (address & 7))
		return false;
	memcpy(ret, (const void *)address, 8);
	return true;
}

/* A frame is some forty instructions, when the walk is in registers: what is called gets its address, and then it is not. */
#define INLINE inline __attribute__((always_inline))

static INLINE bool leave_signal(struct walk *w)
{
	uint64_t registers = w->sp + offsetof(ucontext_t, uc_mcontext.gregs);
	uint64_t sp;
	if (!peek(w, registers + REG_RIP * 8, &w->pc) || !peek(w, registers + REG_RBP * 8, &w->bp) ||
	    !peek(w, registers + REG_RSP * 8, &sp))
		return false;
	w->sp = sp;
	w->top = UINT64_MAX; /* perhaps another stack */
	w->pc += 1;          /* the address itself, not one before it, is in the interrupted instruction */
	return true;
}

/* The CFA by a rule that is not the usual register plus offset. */
static INLINE bool unusual_cfa(struct walk *w, struct ptw_rule rule, uint64_t *ret)
{
	if (rule.cfa == PTW_CFA_RSP_DEREF)
		return peek(w, w->sp + (uint64_t)(int64_t)rule.cfa_offset, ret);
	if (rule.cfa == PTW_CFA_RBP_DEREF)
		return peek(w, w->bp + (uint64_t)(int64_t)rule.cfa_offset, ret);
	w->bx_wanted = rule.cfa == PTW_CFA_RBX;
	*ret = w->bx + (uint64_t)(int64_t)rule.cfa_offset;
	return w->bx_wanted && w->bx_known;
}

static INLINE bool leave(struct walk *w)
{
	struct ptw_rule rule = rule_of(w->pc - 1);
	uint64_t cfa = (rule.cfa == PTW_CFA_RSP ? w->sp : w->bp) + (uint64_t)(int64_t)rule.cfa_offset;
	uint64_t bp = w->bp;
	if (__builtin_expect(rule.cfa != PTW_CFA_RSP && rule.cfa != PTW_CFA_RBP, 0)) {
		if (rule.cfa == PTW_CFA_SIGNAL)
			return leave_signal(w);
		if (!unusual_cfa(w, rule, &cfa))
			return false;
	}
	if (cfa <= w->sp || !peek(w, cfa - 8, &w->pc))
		return false;
	if (w->pc == ptw_unwind_detour.address && (w->pc = ptw_unwind_detour.real(cfa - 8)) == 0)
		return false;
	if (rule.rbp != PTW_RBP_SAME &&
	    !peek(w, (rule.rbp == PTW_RBP_AT_CFA ? cfa : w->bp) + (uint64_t)(int64_t)rule.rbp_offset, &bp))
		return false;
	w->sp = cfa;
	w->bp = bp;
	return w->pc != 0;
}

static INLINE struct walk begin(const struct ptw_frame *from, uint64_t top)
{
	bool here = from->sp < top && top - from->sp < GREATEST_STACK;
	return (struct walk){.pc = from->pc, .sp = from->sp, .bp = from->bp, .top = here ? top : UINT64_MAX};
}

/* Leave a frame with what its caller has in rbx: what it saved, or what is in it still. */
static bool leave_with_bx(struct walk *w)
{
	struct ptw_rule rule = rule_of(w->pc - 1);
	struct walk here = *w;
	if (!leave(w))
		return false;
	if (rule.cfa == PTW_CFA_SIGNAL)
		w->bx_known = peek(&here, here.sp + offsetof(ucontext_t, uc_mcontext.gregs) + REG_RBX * 8, &w->bx);
	else if (rule.rbx == PTW_RBX_LOST)
		w->bx_known = false;
	else if (rule.rbx != PTW_RBX_SAME)
		w->bx_known = peek(&here, w->sp - 8ull * rule.rbx, &w->bx);
	return true;
}

static __attribute__((noinline)) unsigned unwind_with_bx(const struct ptw_frame *from, uint64_t top, uint64_t *stack,
							  unsigned max)
{
	struct walk w = begin(from, top);
	unsigned count = 0;
	w.bx = from->bx;
	w.bx_known = from->bx_known;
	while (count < max) {
		stack[count++] = w.pc;
		if (!leave_with_bx(&w))
			break;
	}
	return count;
}

unsigned ptw_unwind(const struct ptw_frame *from, uint64_t top, uint64_t *stack, unsigned max)
{
	struct walk w = begin(from, top);
	unsigned count = 0;
	while (count < max) {
		stack[count++] = w.pc;
		if (!leave(&w))
			break;
	}
	if (__builtin_expect(w.bx_wanted, 0))
		return unwind_with_bx(from, top, stack, max);
	return count;
}
