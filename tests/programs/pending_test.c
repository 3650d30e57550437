/* SPDX-License-Identifier: MIT */
/* Signals kept for the program and handed to threads, without the rest: slots are filled by hand, all of this process. */
#define _GNU_SOURCE
#include "check.h"
#include "control.h"
#include "dispositions.h"
#include "handlers.h"
#include "pending.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

__thread uint32_t ptw_slot_index __attribute__((tls_model("initial-exec")));
bool ptw_process_mode = true;

enum { OTHER = 1, LATE = SIGUSR1, QUEUED = 40 };

static uint32_t requested;
static uint64_t ignored;
static volatile int runs, values;

/* --- what the rest would do --- */

int ptw_control_request(struct ptw_slot *slot, uint32_t request)
{
	CHECK(slot == &ptw_shared->slot[OTHER]);
	requested |= request;
	return 0;
}

bool ptw_dispositions_ignored(int signal) { return ignored & PTW_BIT(signal); }

bool ptw_signal_arrived(siginfo_t *info)
{
	ptw_pending_redeem(info);
	return true;
}

/* --- */

static void handler(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	ptw_pending_redeem(info);
	CHECK(info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == CLD_EXITED);
	CHECK(info->si_pid == 77);
	runs++;
	if (info->si_code == SI_QUEUE)
		values = values * 10 + info->si_value.sival_int;
}

static siginfo_t info_of(int signal, int code, int value)
{
	siginfo_t info;
	memset(&info, 0, sizeof info);
	info.si_signo = signal;
	info.si_code = code;
	info.si_pid = 77;
	info.si_value.sival_int = value;
	return info;
}

static void post(int signal, int code, int value)
{
	siginfo_t info = info_of(signal, code, value);
	ptw_pending_post(signal, &info);
}

static void block(bool yes)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, LATE);
	sigaddset(&set, QUEUED);
	sigaddset(&set, SIGCHLD);
	ptw_shared->slot[0].blocked = yes ? PTW_BIT(LATE) | PTW_BIT(QUEUED) | PTW_BIT(SIGCHLD) : 0;
	if (!yes)
		ptw_pending_raise(~0ull);
	sigprocmask(yes ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* Slot 0 is this process; slot 1 one that ends at once, so that nothing reaches it. */
static void set_up(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	void *memory = mmap((void *)PTW_META, PTW_META_HEAD, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
	CHECK(memory == (void *)PTW_META);
	sigaction(LATE, &action, NULL);
	sigaction(QUEUED, &action, NULL);
	sigaction(SIGCHLD, &action, NULL);
	ptw_shared->slots_high = 2;
	ptw_shared->slot[0].state = PTW_SLOT_RUNNING;
	ptw_shared->slot[0].pid = (uint32_t)getpid();
	ptw_shared->slot[OTHER].blocked = ~0ull;
	block(true);
}

static void kept_until_it_is_unblocked(void)
{
	post(LATE, SI_USER, 0);
	CHECK(ptw_pending_kept() == PTW_BIT(LATE) && runs == 0);
	block(false);
	CHECK(ptw_pending_kept() == 0 && runs == 1);
	post(LATE, SI_USER, 0); /* and at once while it is not blocked */
	CHECK(runs == 2);
}

static void standard_ones_merge_and_queued_ones_keep_order_and_value(void)
{
	for (int i = 1; i <= 3; i++) {
		post(LATE, SI_USER, 0);
		post(QUEUED, SI_QUEUE, i);
	}
	block(false);
	CHECK(runs == 4 && values == 123);
}

static void what_only_the_kernel_may_say_arrives_unchanged(void)
{
	post(SIGCHLD, CLD_EXITED, 0);
	block(false);
	CHECK(runs == 1);
	CHECK(ptw_pending_table->entry[0].state == 0);
}

static void claimed_lowest_first_and_only_what_is_wanted(void)
{
	siginfo_t info;
	post(QUEUED, SI_QUEUE, 5);
	post(LATE, SI_USER, 0);
	CHECK(ptw_pending_claim(PTW_BIT(SIGUSR2), &info) == 0);
	CHECK(ptw_pending_claim(~0ull, &info) == LATE && info.si_code == SI_USER);
	CHECK(ptw_pending_claim(~0ull, &info) == QUEUED && info.si_value.sival_int == 5);
	CHECK(ptw_pending_claim(~0ull, &info) == 0 && ptw_pending_kept() == 0);
}

static void a_waiting_thread_gets_it_though_it_blocks_it(void)
{
	siginfo_t info;
	sigset_t set;
	ptw_shared->slot[0].waiting = PTW_BIT(LATE);
	post(LATE, SI_USER, 0);
	CHECK(ptw_pending_kept() == 0);
	sigemptyset(&set);
	sigaddset(&set, LATE);
	CHECK(sigwaitinfo(&set, &info) == LATE && info.si_code == PTW_HANDED_OVER);
	ptw_pending_redeem(&info);
	CHECK(info.si_code == SI_USER && info.si_pid == 77);
}

static void returned_when_the_thread_no_longer_takes_it(void)
{
	ptw_shared->slot[0].waiting = PTW_BIT(LATE);
	post(LATE, SI_USER, 0);
	CHECK(ptw_pending_kept() == 0);
	ptw_shared->slot[0].waiting = 0;
	ptw_pending_return();
	CHECK(ptw_pending_kept() == PTW_BIT(LATE));
	block(false);
	CHECK(runs == 1);
}

/* The other thread's process is gone when the signal is sent: it stays here. */
static void kept_when_the_taker_is_gone(void)
{
	signal(SIGCHLD, SIG_DFL); /* the child's own */
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	CHECK(waitpid(child, NULL, 0) == child);
	struct ptw_slot *other = &ptw_shared->slot[OTHER];
	other->pid = (uint32_t)child;
	other->blocked = 0;
	other->state = PTW_SLOT_RUNNING;
	post(LATE, SI_USER, 0);
	CHECK(ptw_pending_kept() == PTW_BIT(LATE));
	other->state = PTW_SLOT_ENDED;
	block(false);
	CHECK(runs == 1);
}

static void ignored_ones_are_dropped_when_somebody_could_take_them(void)
{
	post(LATE, SI_USER, 0);
	ignored = PTW_BIT(LATE);
	CHECK(ptw_pending_kept() == PTW_BIT(LATE));
	block(false);
	CHECK(ptw_pending_kept() == 0 && runs == 0);
	block(true);
	post(LATE, SI_USER, 0);
	ptw_pending_flush(LATE);
	CHECK(ptw_pending_kept() == 0);
}

static void more_than_fit_are_dropped_and_the_others_stay(void)
{
	siginfo_t info;
	for (int i = 0; i < PTW_PENDING_MAX + 10; i++)
		post(QUEUED, SI_QUEUE, i);
	for (int i = 0; i < PTW_PENDING_MAX; i++)
		CHECK(ptw_pending_claim(~0ull, &info) == QUEUED && info.si_value.sival_int == i);
	CHECK(ptw_pending_claim(~0ull, &info) == 0);
}

static void a_wild_index_is_not_believed(void)
{
	siginfo_t info = info_of(LATE, PTW_HANDED_OVER, PTW_PENDING_MAX);
	ptw_pending_redeem(&info);
	CHECK(info.si_code == PTW_HANDED_OVER);
	info.si_value.sival_int = -1;
	ptw_pending_redeem(&info);
	CHECK(info.si_code == PTW_HANDED_OVER);
	info.si_value.sival_int = 3; /* free */
	ptw_pending_redeem(&info);
	CHECK(info.si_code == PTW_HANDED_OVER);
}

#define CASE(name) {#name, name}
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(kept_until_it_is_unblocked),
	CASE(standard_ones_merge_and_queued_ones_keep_order_and_value),
	CASE(what_only_the_kernel_may_say_arrives_unchanged),
	CASE(claimed_lowest_first_and_only_what_is_wanted),
	CASE(a_waiting_thread_gets_it_though_it_blocks_it),
	CASE(returned_when_the_thread_no_longer_takes_it),
	CASE(kept_when_the_taker_is_gone),
	CASE(ignored_ones_are_dropped_when_somebody_could_take_them),
	CASE(more_than_fit_are_dropped_and_the_others_stay),
	CASE(a_wild_index_is_not_believed),
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (argc < 2) {
			puts(cases[i].name);
		} else if (strcmp(argv[1], cases[i].name) == 0) {
			set_up();
			cases[i].run();
			return 0;
		}
	}
	return argc < 2 ? 0 : 2;
}
