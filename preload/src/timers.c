/* SPDX-License-Identifier: MIT */
/* Timers of the program; timers.h says what is guaranteed. Functions but timer_create and timer_delete are signal-safe. */
#define _GNU_SOURCE
#include "timers.h"

#include "errand.h"
#include "real.h"
#include "vforks.h"

#include <errno.h>
#include <string.h>
#include <sys/time.h>

enum { TIMERS = 2048, SIGNAL = 32 /* the C library uses it for the same */ };

enum kind { TO_THREAD = 1, BY_THREAD };

/* A timer whose signal is not for the program: the herald gets it. */
struct timer {
	uint32_t used; /* enum kind once it is filled */
	int id;        /* the kernel's */
	int signal;
	uint32_t slot, generation;
	uint32_t fired;
	void (*function)(union sigval);
	union sigval value;
	uint64_t stack_size;
};

struct timers {
	uint32_t lock;
	uint32_t high;
	uint32_t events;  /* futex: notifications that are due */
	uint32_t started; /* there is a thread that makes threads */
	struct timer timer[TIMERS];
};

#define all ((struct timers *)PTW_META_TIMERS)
_Static_assert(sizeof(struct timers) <= 512 << 10, "timers fit their place");

/* What an errand's data holds. */
struct data {
	struct sigevent event;
	int id;
	struct itimerspec value, old;
};
_Static_assert(sizeof(struct data) <= PTW_ERRAND_DATA, "fits an errand");

static int as_errno(long result)
{
	if (result < 0) {
		errno = (int)-result;
		return -1;
	}
	return (int)result;
}

/* --- the herald's part --- */

static struct timer *find(int id)
{
	uint32_t high = __atomic_load_n(&all->high, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < high; i++)
		if (__atomic_load_n(&all->timer[i].used, __ATOMIC_ACQUIRE) && all->timer[i].id == id)
			return &all->timer[i];
	return NULL;
}

bool ptw_timers_fired(int signal, const siginfo_t *info)
{
	struct timer *timer;
	if (signal != SIGNAL || info->si_code != SI_TIMER || !(timer = find(info->si_timerid)))
		return false;
	if (timer->used == BY_THREAD) {
		__atomic_fetch_add(&timer->fired, 1, __ATOMIC_ACQ_REL);
		__atomic_fetch_add(&all->events, 1, __ATOMIC_ACQ_REL);
		ptw_shared_wake(&all->events, 1);
		return true;
	}
	const struct ptw_slot *slot = &ptw_shared->slot[timer->slot];
	siginfo_t sent = *info;
	sent.si_signo = timer->signal;
	if (slot->generation == timer->generation && !ptw_slot_gone(slot))
		PTW_SYS(SYS_rt_tgsigqueueinfo, slot->pid, slot->pid, timer->signal, &sent, 0, 0);
	return true;
}

void ptw_timers_forget(void)
{
	memset(all->timer, 0, all->high * sizeof *all->timer);
	all->lock = all->high = all->started = 0;
}

/* --- notification by threads --- */

struct notice {
	void (*function)(union sigval);
	union sigval value;
};

static void *notify(void *data)
{
	struct notice notice = *(struct notice *)data;
	sigset_t none;
	free(data);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	notice.function(notice.value);
	return NULL;
}

static void make_thread(const struct timer *timer)
{
	pthread_attr_t attributes;
	pthread_t thread;
	struct notice *notice = malloc(sizeof *notice);
	if (!notice)
		return;
	*notice = (struct notice){timer->function, timer->value};
	pthread_attr_init(&attributes);
	if (timer->stack_size)
		pthread_attr_setstacksize(&attributes, timer->stack_size);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, notify, notice) != 0)
		free(notice);
	pthread_attr_destroy(&attributes);
}

static void *make_threads(void *unused)
{
	for (;;) {
		uint32_t seen = __atomic_load_n(&all->events, __ATOMIC_ACQUIRE);
		for (uint32_t i = 0; i < __atomic_load_n(&all->high, __ATOMIC_ACQUIRE); i++) {
			struct timer *timer = &all->timer[i];
			uint32_t fired = __atomic_exchange_n(&timer->fired, 0, __ATOMIC_ACQ_REL);
			for (; fired && timer->used == BY_THREAD; fired--)
				make_thread(timer);
		}
		ptw_shared_wait(&all->events, seen, NULL);
	}
	return unused;
}

/* The lock is held. An error number. */
static int start_maker(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t every, before;
	if (all->started)
		return 0;
	sigfillset(&every);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	int error = pthread_create(&thread, &attributes, make_threads, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	all->started = error == 0;
	return error;
}

/* --- timer_create and its kin --- */

static struct timer *claim(void)
{
	for (uint32_t i = 0; i < TIMERS; i++) {
		if (all->timer[i].used)
			continue;
		if (i >= all->high)
			__atomic_store_n(&all->high, i + 1, __ATOMIC_RELEASE);
		return &all->timer[i];
	}
	return NULL;
}

/* The clock of this thread, as the main process names it. */
static clockid_t common_clock(clockid_t clock)
{
	return clock == CLOCK_THREAD_CPUTIME_ID && !ptw_is_main() ? (clockid_t)(~(uint32_t)ptw_gettid() << 3 | 2) : clock;
}

static long create(clockid_t clock, const struct sigevent *event, int *ret)
{
	struct ptw_errand *errand = ptw_errand_begin();
	struct data *data = (struct data *)errand->data;
	if (event)
		data->event = *event;
	long result = ptw_errand_run(errand, SYS_timer_create, common_clock(clock), event ? (long)&data->event : 0,
				     (long)&data->id, 0, 0);
	*ret = data->id;
	ptw_errand_end(errand);
	return result;
}

static long create_for_thread(clockid_t clock, const struct sigevent *event, int *ret)
{
	struct timer filled = {.used = BY_THREAD, .signal = event->sigev_signo, .value = event->sigev_value};
	struct sigevent ours = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGNAL, .sigev_value = event->sigev_value};
	if (event->sigev_notify == SIGEV_THREAD) {
		filled.function = event->sigev_notify_function;
		if (event->sigev_notify_attributes)
			pthread_attr_getstacksize(event->sigev_notify_attributes, &filled.stack_size);
		if (start_maker() != 0)
			return -EAGAIN;
	} else {
		filled.used = TO_THREAD;
		while (filled.slot < ptw_shared->slots_high &&
		       ptw_shared->slot[filled.slot].pid != (uint32_t)event->_sigev_un._tid)
			filled.slot++;
		if (filled.slot >= ptw_shared->slots_high || event->sigev_signo < 1 || event->sigev_signo > 64)
			return -EINVAL;
		filled.generation = ptw_shared->slot[filled.slot].generation;
	}
	struct timer *timer = claim();
	if (!timer)
		return -EAGAIN;
	ours._sigev_un._tid = (pid_t)ptw_shared->herald;
	long result = create(clock, &ours, &filled.id);
	if (result == 0) {
		uint32_t used = filled.used;
		filled.used = 0;
		*timer = filled;
		__atomic_store_n(&timer->used, used, __ATOMIC_RELEASE);
	}
	*ret = filled.id;
	return result;
}

static bool for_other_thread(const struct sigevent *event)
{
	return event && (event->sigev_notify == SIGEV_THREAD ||
			 (event->sigev_notify == SIGEV_THREAD_ID && event->_sigev_un._tid != (pid_t)ptw_shared->main_pid));
}

PTW_EXPORT int timer_create(clockid_t clock, struct sigevent *restrict event, timer_t *restrict ret)
{
	struct sigevent copy;
	int id;
	if (!ptw_process_mode)
		return GLIBC(timer_create)(clock, event, ret);
	if (event)
		copy = *event;
	long result;
	if (for_other_thread(event ? &copy : NULL)) {
		ptw_lock(&all->lock);
		result = create_for_thread(clock, &copy, &id);
		ptw_unlock(&all->lock);
	} else {
		result = create(clock, event ? &copy : NULL, &id);
	}
	if (result == 0)
		*ret = (timer_t)(intptr_t)id;
	return as_errno(result);
}

static long on_timer(long number, timer_t timer)
{
	struct ptw_errand *errand = ptw_errand_begin();
	long result = ptw_errand_run(errand, number, (long)(intptr_t)timer, 0, 0, 0, 0);
	ptw_errand_end(errand);
	return result;
}

PTW_EXPORT int timer_delete(timer_t timer)
{
	if (!ptw_process_mode)
		return GLIBC(timer_delete)(timer);
	long result = on_timer(SYS_timer_delete, timer);
	struct timer *ours = result == 0 ? find((int)(intptr_t)timer) : NULL;
	if (ours)
		__atomic_store_n(&ours->used, 0, __ATOMIC_RELEASE);
	return as_errno(result);
}

PTW_EXPORT int timer_getoverrun(timer_t timer)
{
	return ptw_process_mode ? as_errno(on_timer(SYS_timer_getoverrun, timer)) : GLIBC(timer_getoverrun)(timer);
}

/* `value` and `old` may be NULL. */
static long with_time(long number, timer_t timer, int flags, const struct itimerspec *value, struct itimerspec *old)
{
	struct itimerspec wanted = {{0, 0}, {0, 0}}, before;
	if (value)
		wanted = *value;
	struct ptw_errand *errand = ptw_errand_begin();
	struct data *data = (struct data *)errand->data;
	data->value = wanted;
	long id = (long)(intptr_t)timer, result;
	if (number == SYS_timer_gettime)
		result = ptw_errand_run(errand, number, id, (long)&data->old, 0, 0, 0);
	else
		result = ptw_errand_run(errand, number, id, flags, value ? (long)&data->value : 0, (long)&data->old, 0);
	before = data->old;
	ptw_errand_end(errand);
	if (result == 0 && old)
		*old = before;
	return result;
}

PTW_EXPORT int timer_settime(timer_t timer, int flags, const struct itimerspec *restrict value,
			     struct itimerspec *restrict old)
{
	return ptw_process_mode ? as_errno(with_time(SYS_timer_settime, timer, flags, value, old))
				: GLIBC(timer_settime)(timer, flags, value, old);
}

PTW_EXPORT int timer_gettime(timer_t timer, struct itimerspec *ret)
{
	return ptw_process_mode ? as_errno(with_time(SYS_timer_gettime, timer, 0, NULL, ret))
				: GLIBC(timer_gettime)(timer, ret);
}

/* --- the program's interval timers --- */

static int interval(long number, int which, const struct itimerval *value, struct itimerval *old)
{
	struct itimerval wanted = {{0, 0}, {0, 0}}, before;
	if (value)
		wanted = *value;
	struct ptw_errand *errand = ptw_errand_begin();
	struct itimerval *data = (struct itimerval *)errand->data;
	data[0] = wanted;
	long result = number == SYS_getitimer ? ptw_errand_run(errand, number, which, (long)&data[1], 0, 0, 0)
					      : ptw_errand_run(errand, number, which, (long)&data[0], (long)&data[1], 0, 0);
	before = data[1];
	ptw_errand_end(errand);
	if (result == 0 && old)
		*old = before;
	return as_errno(result);
}

PTW_EXPORT int setitimer(__itimer_which_t which, const struct itimerval *restrict value, struct itimerval *restrict old)
{
	return ptw_is_kept() ? interval(SYS_setitimer, (int)which, value, old) : GLIBC(setitimer)(which, value, old);
}

PTW_EXPORT int getitimer(__itimer_which_t which, struct itimerval *ret)
{
	return ptw_is_kept() ? interval(SYS_getitimer, (int)which, NULL, ret) : GLIBC(getitimer)(which, ret);
}

PTW_EXPORT unsigned alarm(unsigned seconds)
{
	if (!ptw_is_kept())
		return GLIBC(alarm)(seconds);
	struct ptw_errand *errand = ptw_errand_begin();
	long result = ptw_errand_run(errand, SYS_alarm, seconds, 0, 0, 0, 0);
	ptw_errand_end(errand);
	return (unsigned)result;
}

PTW_EXPORT useconds_t ualarm(useconds_t value, useconds_t every)
{
	struct itimerval wanted = {{every / 1000000, every % 1000000}, {value / 1000000, value % 1000000}}, before;
	if (setitimer(ITIMER_REAL, &wanted, &before) != 0)
		return (useconds_t)-1;
	return (useconds_t)(before.it_value.tv_sec * 1000000 + before.it_value.tv_usec);
}
