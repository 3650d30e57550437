/* SPDX-License-Identifier: MIT */
/* Calls by instruction; instructions.h says what becomes of them. */
#define _GNU_SOURCE
#include "instructions.h"

#include "dispositions.h"
#include "engine.h"
#include "handlers.h"
#include "notice.h"
#include "raw_call.h"
#include "view.h"

#include <errno.h>
#include <link.h>
#include <signal.h>
#include <ucontext.h>

enum {
	DISPATCH = 59, /* PR_SET_SYSCALL_USER_DISPATCH */
	DISPATCH_ON = 1,
	DISPATCHED = 2, /* si_code: SYS_USER_DISPATCH */
	BEFORE = 48,    /* bytes before a call within which its number is loaded */
	LENGTH = 2,     /* of the instruction */
	SHORTEST = 2,   /* instruction between the two */
};

#define HIGHEST 0x7ffffffff000ull

bool ptw_instructions_on;
uint8_t ptw_instructions_gate;
static uint64_t executable_end;

/* --- looking for them --- */

/* Bytes of an operand: ModRM, what it says follows, and nothing else. */
static int operand_length(const uint8_t *at)
{
	static const uint8_t displacement[] = {0, 1, 4, 0};
	int mode = at[0] >> 6, base = at[0] & 7, length = 1 + displacement[mode];
	if (mode != 3 && base == 4) {
		length++;
		base = at[1] & 7;
	}
	return mode == 0 && base == 5 ? length + 4 : length;
}

/* Length of an instruction that puts an argument into its place: moves, lea, xor; 0: it is another one. Reads four
 * bytes at most. */
static int argument_length(const uint8_t *at)
{
	int prefix = (at[0] & 0xf0) == 0x40;
	bool wide = prefix && at[0] & 8;
	uint8_t opcode = at[prefix];
	switch (opcode) {
	case 0x31: /* xor */
	case 0x33:
	case 0x63: /* movslq */
	case 0x89: /* mov */
	case 0x8b:
	case 0x8d: /* lea */
		return prefix + 1 + operand_length(at + prefix + 1);
	case 0xc7: /* mov of a constant */
		return prefix + 1 + operand_length(at + prefix + 1) + 4;
	default:
		return (opcode & 0xf8) == 0xb8 ? prefix + 1 + (wide ? 8 : 4) : 0;
	}
}

/* "mov $number, %eax" shortly before, and nothing but arguments in between: else the two bytes may be data, or part of
 * another instruction. */
static bool loads_number(const uint8_t *at, const uint8_t *start)
{
	const uint8_t *from = at - start > BEFORE ? at - BEFORE : start;
	for (const uint8_t *byte = from; byte + 5 <= at; byte++) {
		if (*byte != 0xb8 || byte[2] >= 2 || byte[3] != 0 || byte[4] != 0)
			continue;
		const uint8_t *next = byte + 5;
		for (int length; at - next >= SHORTEST && (length = argument_length(next)) > 0;)
			next += length;
		if (next == at)
			return true;
	}
	return false;
}

struct search {
	const void *first;  /* the bytes of a call instruction, wherever */
	const void *likely; /* one that is surely one */
};

static void found(const uint8_t *at, const uint8_t *start, struct search *search)
{
	if (!search->first)
		search->first = at;
	if (!search->likely && loads_number(at, start))
		search->likely = at;
}

/* Sixteen places at a time: executables have megabytes of code. */
static void search_code(const uint8_t *start, uint64_t size, struct search *search)
{
	const uint8_t *at = start, *end = start + size;
	const __m128i first = _mm_set1_epi8(0x0f), second = _mm_set1_epi8(0x05);
	for (; end - at > 16; at += 16) {
		__m128i here = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(const void *)at), first);
		__m128i next = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(const void *)(at + 1)), second);
		for (int bits = _mm_movemask_epi8(_mm_and_si128(here, next)); bits; bits &= bits - 1)
			found(at + __builtin_ctz((unsigned)bits), start, search);
	}
	for (; end - at >= LENGTH; at++)
		if (at[0] == 0x0f && at[1] == 0x05)
			found(at, start, search);
}

/* The executable is the first object. */
static int look(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + part->p_vaddr;
		if (part->p_type != PT_LOAD)
			continue;
		if (start + part->p_memsz > executable_end)
			executable_end = start + part->p_memsz;
		if (part->p_flags & PF_X && part->p_flags & PF_R)
			search_code((const uint8_t *)start, part->p_filesz, data);
	}
	return 1;
}

/* --- calls that were handed to us --- */

/* What goes on elsewhere, or not at all: the call is made where it stands. */
static bool must_stand(long number, long first)
{
	switch (number) {
	case SYS_clone:
		return first != SIGCHLD;
	case SYS_clone3:
	case SYS_vfork:
	case SYS_exit:
	case SYS_exit_group:
	case SYS_rt_sigreturn:
	case SYS_execve:
	case SYS_execveat:
		return true;
	default:
		return false;
	}
}

static void on_call(int signal, siginfo_t *info, void *data)
{
	greg_t *registers = ((ucontext_t *)data)->uc_mcontext.gregs;
	int before = errno;
	if (info->si_code != DISPATCHED) { /* the program's own, or sent to it */
		struct ptw_action action = ptw_dispositions_take(signal);
		ptw_handler_run(&action, signal, info, data);
		return;
	}
	long number = info->si_syscall;
	long argument[PTW_CALL_ARGUMENTS] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
					     registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
	if (must_stand(number, argument[0])) {
		__atomic_store_n(&ptw_instructions_gate, 0, __ATOMIC_RELAXED);
		registers[REG_RIP] -= LENGTH;
		return;
	}
	struct ptw_frame frame = {(uint64_t)registers[REG_RIP], (uint64_t)registers[REG_RSP],
				  (uint64_t)registers[REG_RBP], (uint64_t)registers[REG_RBX], true};
	registers[REG_RAX] = ptw_raw_call(number, argument, &frame);
	errno = before;
}

void ptw_instructions_begin(void)
{
	if (!ptw_instructions_on)
		return;
	ptw_instructions_gate = 1;
	if (PTW_SYS(SYS_prctl, DISPATCH, DISPATCH_ON, executable_end, HIGHEST - executable_end, &ptw_instructions_gate,
		    0) != 0)
		ptw_instructions_on = false;
}

void ptw_instructions_init(void)
{
	struct search search = {0};
	dl_iterate_phdr(look, &search);
	if (!search.first || executable_end >= (uint64_t)&ptw_instructions_gate)
		return;
	/* engines make all calls in a place of their own; with private copies the handler loses what is written in its midst */
	ptw_instructions_on = !ptw_under_engine() && !ptw_private;
	if (ptw_instructions_on) {
		ptw_install(SIGSYS, (uint64_t)on_call, SA_SIGINFO | SA_NODEFER, 0);
		ptw_instructions_begin();
	}
	if (!ptw_instructions_on && search.likely)
		ptw_notice(PTW_NOTICE_CALL, search.likely,
			   "a system call by an instruction of the program's own: it may find closed pages (EFAULT)");
}
