/* SPDX-License-Identifier: MIT */
/*
 * Processor time and other usage of the whole program; program.h says what is guaranteed.
 *
 * What threads that live have used the kernel knows: their processes' clocks to the nanosecond, the rest from /proc in
 * ticks. What ended threads had used they add up themselves at their end, so what is read never goes back; the little
 * their processes use after that is not counted. The kernel counts ended threads as children of the main process: that
 * is taken off again.
 */
#define _GNU_SOURCE
#include "program.h"
#include "real.h"
#include "touch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/times.h>
#include <unistd.h>

enum { PER_THREAD = 4, WHICH = 3, SCHEDULED = 2 }; /* bits of a clock that names a process or thread, as the kernel has it */

static uint64_t microseconds(const struct timeval *time)
{
	return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

static struct timeval timeval_of(uint64_t us)
{
	return (struct timeval){(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now = {0, 0};
	PTW_SYS(SYS_clock_gettime, clock, &now, 0, 0, 0, 0);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static clockid_t clock_of_process(uint32_t pid) { return (clockid_t)(~pid << 3 | SCHEDULED); }

/* Threads beside this one that have not ended. The lock is held. */
static bool counts(uint32_t i)
{
	const struct ptw_slot *slot = &ptw_shared->slot[i];
	return i != ptw_slot_index && slot->pid && !slot->counted &&
	       __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != PTW_SLOT_FREE;
}

#define EACH_OTHER(i) \
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++) if (counts(i))

static void lock(uint64_t *mask) { ptw_lock_masked(&ptw_program_state->usage_lock, mask); }

static void unlock(const uint64_t *mask) { ptw_unlock_masked(&ptw_program_state->usage_lock, mask); }

uint64_t ptw_program_cpu_ns(void)
{
	uint64_t mask;
	lock(&mask);
	uint64_t sum = ptw_program_state->ended.cpu_ns;
	if (!ptw_slot()->counted)
		sum += clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	EACH_OTHER(i)
		sum += clock_ns(clock_of_process(ptw_shared->slot[i].pid));
	unlock(&mask);
	return sum;
}

/* --- the rest of what a process used --- */

static void add(struct ptw_usage *sum, const struct ptw_usage *more)
{
	sum->cpu_ns += more->cpu_ns;
	sum->user_us += more->user_us;
	sum->system_us += more->system_us;
	sum->child_user_us += more->child_user_us;
	sum->child_system_us += more->child_system_us;
	sum->minor += more->minor;
	sum->major += more->major;
	sum->in += more->in;
	sum->out += more->out;
	sum->voluntary += more->voluntary;
	sum->involuntary += more->involuntary;
	if (more->resident > sum->resident)
		sum->resident = more->resident;
}

static struct ptw_usage own_usage(void)
{
	struct rusage self, children;
	PTW_SYS(SYS_getrusage, RUSAGE_SELF, &self, 0, 0, 0, 0);
	PTW_SYS(SYS_getrusage, RUSAGE_CHILDREN, &children, 0, 0, 0, 0);
	return (struct ptw_usage){
		.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID),
		.user_us = microseconds(&self.ru_utime),
		.system_us = microseconds(&self.ru_stime),
		.child_user_us = microseconds(&children.ru_utime),
		.child_system_us = microseconds(&children.ru_stime),
		.minor = (uint64_t)self.ru_minflt,
		.major = (uint64_t)self.ru_majflt,
		.in = (uint64_t)self.ru_inblock,
		.out = (uint64_t)self.ru_oublock,
		.voluntary = (uint64_t)self.ru_nvcsw,
		.involuntary = (uint64_t)self.ru_nivcsw,
		.resident = (uint64_t)self.ru_maxrss,
	};
}

static char *put_number(char *at, uint32_t number)
{
	char digits[12];
	unsigned count = 0;
	do
		digits[count++] = (char)('0' + number % 10);
	while (number /= 10);
	while (count)
		*at++ = digits[--count];
	return at;
}

enum { MINOR = 10, MAJOR = 12, USER = 14, SYSTEM = 15, CHILD_USER = 16, CHILD_SYSTEM = 17, FIELDS = 18 }; /* proc(5) */

/* Fields of /proc/PID/stat, numbered from 1; false when the process is gone. */
static bool read_fields(uint32_t pid, uint64_t *field)
{
	char path[40] = "/proc/", text[1024];
	strcpy(put_number(path + 6, pid), "/stat");
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	long got = PTW_SYS(SYS_read, fd, text, sizeof text - 1, 0, 0, 0);
	ptw_close((int)fd);
	text[got > 0 ? got : 0] = '\0';
	const char *at = strrchr(text, ')'); /* the name before may hold anything */
	if (!at)
		return false;
	memset(field, 0, FIELDS * sizeof *field);
	at++;
	for (unsigned i = 3; i < FIELDS && *at; i++) {
		for (at += *at == ' '; *at && *at != ' '; at++)
			if (*at >= '0' && *at <= '9')
				field[i] = field[i] * 10 + (uint64_t)(*at - '0');
	}
	return true;
}

static struct ptw_usage usage_of(uint32_t pid)
{
	uint64_t field[FIELDS], tick = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
	struct ptw_usage usage = {0};
	if (!read_fields(pid, field))
		return usage;
	uint64_t ticks = field[USER] + field[SYSTEM];
	usage.cpu_ns = clock_ns(clock_of_process(pid));
	usage.user_us = ticks ? usage.cpu_ns / 1000 * field[USER] / ticks : usage.cpu_ns / 1000;
	usage.system_us = usage.cpu_ns / 1000 - usage.user_us;
	usage.child_user_us = field[CHILD_USER] * tick;
	usage.child_system_us = field[CHILD_SYSTEM] * tick;
	usage.minor = field[MINOR];
	usage.major = field[MAJOR];
	return usage;
}

static uint64_t less(uint64_t value, uint64_t by) { return value > by ? value - by : 0; }

static struct ptw_usage program_usage(void)
{
	uint64_t mask;
	lock(&mask);
	struct ptw_usage sum = ptw_program_state->ended;
	if (!ptw_slot()->counted) {
		struct ptw_usage mine = own_usage();
		add(&sum, &mine);
	}
	EACH_OTHER(i) {
		struct ptw_usage other = usage_of(ptw_shared->slot[i].pid);
		add(&sum, &other);
	}
	sum.child_user_us = less(sum.child_user_us, ptw_program_state->buried_user_us);
	sum.child_system_us = less(sum.child_system_us, ptw_program_state->buried_system_us);
	unlock(&mask);
	return sum;
}

void ptw_usage_end(void)
{
	uint64_t mask;
	lock(&mask);
	struct ptw_usage mine = own_usage();
	add(&ptw_program_state->ended, &mine);
	ptw_slot()->counted = 1;
	unlock(&mask);
}

/* The children a thread waited for are in there, and stay counted. */
void ptw_usage_buried(const struct rusage *usage)
{
	uint64_t mask;
	lock(&mask);
	ptw_program_state->buried_user_us += microseconds(&usage->ru_utime);
	ptw_program_state->buried_system_us += microseconds(&usage->ru_stime);
	unlock(&mask);
}

/* --- what the program asks --- */

/* Alone, a process is what the kernel says. */
static bool alone(void) { return !ptw_process_mode || ptw_shared->slots_high <= 1; }

static void to_program(int who, struct rusage *ret)
{
	struct ptw_usage sum = program_usage();
	if (who == RUSAGE_CHILDREN) {
		ret->ru_utime = timeval_of(sum.child_user_us);
		ret->ru_stime = timeval_of(sum.child_system_us);
		return;
	}
	ret->ru_utime = timeval_of(sum.user_us);
	ret->ru_stime = timeval_of(sum.system_us);
	ret->ru_minflt = (long)sum.minor;
	ret->ru_majflt = (long)sum.major;
	ret->ru_inblock = (long)sum.in;
	ret->ru_oublock = (long)sum.out;
	ret->ru_nvcsw = (long)sum.voluntary;
	ret->ru_nivcsw = (long)sum.involuntary;
	ret->ru_maxrss = (long)sum.resident;
}

long ptw_get_usage(int who, struct rusage *ret, const struct ptw_frame *caller)
{
	if (ptw_tracking)
		ptw_touch(ret, sizeof *ret, true, caller);
	long result = PTW_SYS(SYS_getrusage, who, ret, 0, 0, 0, 0);
	if (result == 0 && !alone() && who != RUSAGE_THREAD)
		to_program(who, ret);
	return result;
}

PTW_EXPORT int getrusage(__rusage_who_t who, struct rusage *ret)
{
	struct ptw_frame caller = PTW_CALLER;
	long result = ptw_get_usage((int)who, ret, &caller);
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : 0;
}

PTW_EXPORT clock_t times(struct tms *ret)
{
	struct ptw_frame caller = PTW_CALLER;
	if (ptw_tracking)
		ptw_touch(ret, sizeof *ret, true, &caller);
	long result = PTW_SYS(SYS_times, ret, 0, 0, 0, 0, 0);
	if (result == -EFAULT) { /* no other error is one: the time may be negative */
		errno = EFAULT;
		return -1;
	}
	if (ret && !alone()) {
		struct ptw_usage sum = program_usage();
		uint64_t tick = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
		*ret = (struct tms){(clock_t)(sum.user_us / tick), (clock_t)(sum.system_us / tick),
				    (clock_t)(sum.child_user_us / tick), (clock_t)(sum.child_system_us / tick)};
	}
	return result;
}

clockid_t ptw_clock_of(clockid_t clock)
{
	uint32_t tid = ~((uint32_t)clock >> 3 | 0xe0000000u);
	if (alone() || clock >= 0 || !(clock & PER_THREAD))
		return clock;
	if (tid == (uint32_t)ptw_gettid())
		return clock;
	for (uint32_t i = 0; i < ptw_shared->slots_high; i++)
		if (ptw_shared->slot[i].pid == tid && ptw_shared->slot[i].state != PTW_SLOT_FREE)
			return (clockid_t)(clock & ~PER_THREAD);
	return clock;
}

/* The program's own, by whichever name. */
static bool is_program(clockid_t clock)
{
	return !alone() && (clock == CLOCK_PROCESS_CPUTIME_ID || clock == clock_of_process(ptw_shared->main_pid));
}

PTW_EXPORT int clock_gettime(clockid_t clock, struct timespec *ret)
{
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		ptw_touch(ret, sizeof *ret, true, &caller);
	}
	if (__builtin_expect(clock < 0 || clock == CLOCK_PROCESS_CPUTIME_ID, 0)) {
		if (is_program(clock)) {
			uint64_t now = ptw_program_cpu_ns();
			*ret = (struct timespec){(time_t)(now / 1000000000), (long)(now % 1000000000)};
			return 0;
		}
		clock = ptw_clock_of(clock);
	}
	return GLIBC(clock_gettime)(clock, ret);
}

PTW_EXPORT int clock_getres(clockid_t clock, struct timespec *ret)
{
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		ptw_touch(ret, sizeof *ret, true, &caller);
	}
	return GLIBC(clock_getres)(ptw_clock_of(clock), ret);
}

/* Without a vDSO, as under an engine, the kernel writes what these two return. */
PTW_EXPORT int gettimeofday(struct timeval *ret, void *zone)
{
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		ptw_touch(ret, sizeof *ret, true, &caller);
		ptw_touch(zone, sizeof(struct timezone), true, &caller);
	}
	return GLIBC(gettimeofday)(ret, zone);
}

PTW_EXPORT time_t time(time_t *ret)
{
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		ptw_touch(ret, sizeof *ret, true, &caller);
	}
	return GLIBC(time)(ret);
}

PTW_EXPORT clock_t clock(void)
{
	return alone() ? GLIBC(clock)() : (clock_t)(ptw_program_cpu_ns() / (1000000000 / CLOCKS_PER_SEC));
}

void ptw_program_forked(void)
{
	struct ptw_program *program = ptw_program_state;
	program->limits_lock = program->ids_lock = program->usage_lock = 0;
	memset(program->servant, 0, sizeof program->servant);
	memset(&program->ended, 0, sizeof program->ended);
	program->buried_user_us = program->buried_system_us = 0;
	ptw_slot()->counted = 0;
}
