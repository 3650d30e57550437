/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "events.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "programs.h"
#include "ring.h"
#include "urgency.h"

enum {
	TICK_MS = 20,			/* the thread looks at the ring at least so often */
	RECORDS_A_TURN = 4096,		/* taken before others get the lock */
	WAKE_BYTES = 1 << 20,		/* in the ring before the programs wake the thread */
	PIDFD_THREAD = 00000200,	/* include/uapi/linux/pidfd.h, since Linux 6.9 */
};

struct batch_list {
	struct ptw_batch *head;
	struct ptw_batch *tail;
};

struct ptw_recorder {
	pid_t owner;
	struct ptw_programs programs;
	struct ptw_ring ring;
	int ready_fd;			/* eventfd, readable while a batch is ready */
	int stop_fd;			/* eventfd, readable once the thread shall end */
	int spare_fd;			/* eventfd, written when the thread waited for a batch and there is one */
	int epoll_fd;
	int in_namespace;		/* tasks have other numbers to the programs than to us */
	uint32_t wake_bytes;
	uint32_t batch_rows;
	uint32_t batch_limit;
	int64_t batch_age_ns;
	/* the thread's and the takers', under the lock */
	pthread_mutex_t lock;
	pthread_t thread;
	int running;
	int hungry;			/* it found no batch to fill */
	uint32_t batch_count;
	uint32_t ready_count;
	struct ptw_batch *filling;
	struct batch_list ready;
	struct batch_list spare;
	uint64_t taken[PTW_RECORD_KINDS];
	uint64_t malformed;
	uint64_t wakeups;
	uint64_t starved;
};

const char *ptw_recorder_trouble(void)
{
	return ptw_programs_trouble();
}

static int foreign(const struct ptw_recorder *recorder)
{
	return getpid() != recorder->owner;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* --- batches ------------------------------------------------------------------------------------------------- */

static void push(struct batch_list *list, struct ptw_batch *batch)
{
	batch->next = NULL;
	if (list->tail)
		list->tail->next = batch;
	else
		list->head = batch;
	list->tail = batch;
}

static struct ptw_batch *pop(struct batch_list *list)
{
	struct ptw_batch *batch = list->head;

	if (batch) {
		list->head = batch->next;
		if (!list->head)
			list->tail = NULL;
		batch->next = NULL;
	}
	return batch;
}

/* A batch to fill, NULL when all are in use or there is no memory: the ring then holds what comes. */
static struct ptw_batch *empty_batch(struct ptw_recorder *recorder)
{
	struct ptw_batch *batch = pop(&recorder->spare);

	if (!batch && recorder->batch_count < recorder->batch_limit &&
	    !ptw_batch_create(recorder->batch_rows, &batch))
		recorder->batch_count++;
	return batch;
}

static void hand_over(struct ptw_recorder *recorder)
{
	const uint64_t one = 1;

	push(&recorder->ready, recorder->filling);
	recorder->filling = NULL;
	recorder->ready_count++;
	/* fails only when it is readable anyway */
	if (write(recorder->ready_fd, &one, sizeof(one)) < 0)
		return;
}

static int take_record(void *context, const void *record, size_t size)
{
	struct ptw_recorder *recorder = context;
	int kind = -ENOSPC;

	if (recorder->filling)
		kind = ptw_batch_append(recorder->filling, record, size);
	if (kind == -ENOSPC) {
		if (recorder->filling)
			hand_over(recorder);
		recorder->filling = empty_batch(recorder);
		if (!recorder->filling) {
			recorder->starved++;
			return -EAGAIN;
		}
		recorder->filling->since = now_ns();
		kind = ptw_batch_append(recorder->filling, record, size);
	}
	if (kind < 0)
		recorder->malformed++;
	else
		recorder->taken[kind]++;
	return 0;
}

/* One turn with the lock held. Returns 1 when there is more in the ring to take now. */
static int drain(struct ptw_recorder *recorder)
{
	uint64_t taken;
	int stopped;

	taken = ptw_ring_consume(&recorder->ring, take_record, recorder, RECORDS_A_TURN, &stopped);
	recorder->hungry = stopped;
	if (recorder->filling && recorder->filling->all &&
	    now_ns() - recorder->filling->since >= recorder->batch_age_ns)
		hand_over(recorder);
	return !stopped && taken == RECORDS_A_TURN;
}

/*
 * While there is no batch to fill, the programs must not wake us: what is in the ring is above the threshold, and each
 * call would. Who releases a batch does.
 */
static void let_programs_wake(struct ptw_recorder *recorder, uint32_t pending)
{
	__atomic_store_n(recorder->programs.wake_pending, pending, __ATOMIC_SEQ_CST);
}

/* Calls are most of what there is, and other records are made by the same tasks. */
static uint64_t calls_made_on(const void *recorder, unsigned int cpu)
{
	const struct ptw_cpu_counts *counts = ((const struct ptw_recorder *)recorder)->programs.counts;

	return __atomic_load_n(&counts[cpu % PTW_CPUS].submitted[PTW_RECORD_SYSCALL], __ATOMIC_RELAXED);
}

static void *drain_thread(void *argument)
{
	struct ptw_recorder *recorder = argument;
	struct ptw_urgency urgency;
	struct ptw_place place;
	struct epoll_event event;
	int more = 0;

	ptw_urgency_init(&urgency, recorder->wake_bytes, recorder->ring.mask + 1);
	ptw_place_init(&place);
	for (;;) {
		int count = epoll_wait(recorder->epoll_fd, &event, 1, more ? 0 : TICK_MS);

		if (count > 0 && event.data.fd == recorder->stop_fd)
			return NULL;
		ptw_urgency_turn(&urgency, ptw_ring_used(&recorder->ring));
		(void)ptw_place_turn(&place, recorder->taken[PTW_RECORD_SYSCALL], calls_made_on, recorder);
		let_programs_wake(recorder, 0);
		pthread_mutex_lock(&recorder->lock);
		recorder->wakeups += count > 0;
		more = drain(recorder);
		if (recorder->hungry)
			let_programs_wake(recorder, 1);
		pthread_mutex_unlock(&recorder->lock);
	}
}

/* --- life ---------------------------------------------------------------------------------------------------- */

static int watch(int epoll_fd, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = fd};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int prepare(struct ptw_recorder *recorder, const struct ptw_config *config)
{
	const struct ptw_programs_config programs = {
		.object = config->object,
		.object_size = config->object_size,
		.raw = config->variant == PTW_VARIANT_RAW,
		.ring_bytes = config->ring_bytes,
		.wake_bytes = recorder->wake_bytes,
		.pid_namespace = config->pid_namespace,
		.all = config->all,
		.self = config->self,
		.capture = config->capture < PTW_CAPTURE_LIMIT ? config->capture : PTW_CAPTURE_LIMIT,
		.frames = config->frames < PTW_FRAMES ? config->frames : PTW_FRAMES,
		.descriptions = config->descriptions,
		.probe_specs = config->probe_specs,
		.probe_count = config->probe_count,
	};
	int error = ptw_programs_init(&recorder->programs, &programs);

	if (!error)
		error = ptw_filters_set(&recorder->programs, &config->rules);
	if (!error)
		error = ptw_ring_init(&recorder->ring, recorder->programs.ring_fd, config->ring_bytes);
	if (error)
		return error;
	recorder->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	recorder->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	recorder->spare_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	recorder->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (recorder->ready_fd < 0 || recorder->stop_fd < 0 || recorder->spare_fd < 0 ||
	    recorder->epoll_fd < 0)
		return -errno;
	/* edge-triggered: level-triggered, any byte in the ring would wake the thread at once */
	error = watch(recorder->epoll_fd, recorder->programs.ring_fd, EPOLLIN | EPOLLET);
	if (!error)	/* nobody reads it: each write is an edge */
		error = watch(recorder->epoll_fd, recorder->spare_fd, EPOLLIN | EPOLLET);
	return error ? error : watch(recorder->epoll_fd, recorder->stop_fd, EPOLLIN);
}

int ptw_recorder_create(const struct ptw_config *config, struct ptw_recorder **ret)
{
	struct ptw_recorder *recorder = calloc(1, sizeof(*recorder));
	uint32_t quarter = config->ring_bytes / 4;
	int error;

	if (!recorder)
		return -ENOMEM;
	recorder->owner = getpid();
	recorder->ready_fd = recorder->stop_fd = recorder->spare_fd = recorder->epoll_fd = -1;
	recorder->in_namespace = config->pid_namespace != 0;
	recorder->wake_bytes = config->wake_bytes ? config->wake_bytes : quarter < WAKE_BYTES ? quarter : WAKE_BYTES;
	recorder->batch_rows = config->batch_rows;
	recorder->batch_limit = config->batches;
	recorder->batch_age_ns = (int64_t)config->batch_age_ms * 1000000;
	pthread_mutex_init(&recorder->lock, NULL);
	error = prepare(recorder, config);
	if (error)
		ptw_recorder_destroy(recorder);
	else
		*ret = recorder;
	return error;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void ptw_recorder_destroy(struct ptw_recorder *recorder)
{
	struct ptw_batch *batch;

	if (!recorder || foreign(recorder))
		return;
	(void)ptw_recorder_stop(recorder);
	while ((batch = pop(&recorder->ready)) || (batch = pop(&recorder->spare)))
		ptw_batch_destroy(batch);
	ptw_batch_destroy(recorder->filling);
	ptw_ring_deinit(&recorder->ring);
	close_fd(recorder->ready_fd);
	close_fd(recorder->stop_fd);
	close_fd(recorder->spare_fd);
	close_fd(recorder->epoll_fd);
	ptw_programs_deinit(&recorder->programs);
	pthread_mutex_destroy(&recorder->lock);
	free(recorder);
}

static int start_thread(struct ptw_recorder *recorder)
{
	sigset_t all;
	sigset_t before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&recorder->thread, NULL, drain_thread, recorder);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	recorder->running = !error;
	return -error;
}

int ptw_recorder_start(struct ptw_recorder *recorder, const struct ptw_config *config)
{
	int error;

	if (foreign(recorder))
		return -ECHILD;
	error = ptw_programs_attach(&recorder->programs, config->probes, config->probe_count);
	if (error)
		return error;
	error = start_thread(recorder);
	if (error)
		ptw_programs_detach(&recorder->programs);
	return error;
}

int ptw_recorder_stop(struct ptw_recorder *recorder)
{
	const uint64_t one = 1;

	if (foreign(recorder))
		return -ECHILD;
	ptw_programs_detach(&recorder->programs);
	if (recorder->running) {
		if (write(recorder->stop_fd, &one, sizeof(one)) < 0)
			return -errno;
		pthread_join(recorder->thread, NULL);
		recorder->running = 0;
	}
	return 0;
}

int ptw_recorder_filter(struct ptw_recorder *recorder, const struct ptw_filter_rules *rules)
{
	if (foreign(recorder))
		return -ECHILD;
	return ptw_filters_set(&recorder->programs, rules);
}

/* A task that has no descriptor of its own to name it by begins at its next call (kernels before 6.9). */
static int follow_later(struct ptw_recorder *recorder, int tid)
{
	const uint32_t one = 1;
	uint32_t key = (uint32_t)tid;

	if (bpf_map_update_elem(recorder->programs.waiting_fd, &key, &one, BPF_NOEXIST))
		return -errno;
	__atomic_add_fetch(recorder->programs.waiting_tasks, 1, __ATOMIC_SEQ_CST);
	return 0;
}

int ptw_recorder_follow(struct ptw_recorder *recorder, int tid)
{
	/* it may be in a call just now: the first exit seen may have no enter */
	struct ptw_task state = {.newborn = 1};
	int pid_fd;
	int error;

	if (foreign(recorder))
		return -ECHILD;
	pid_fd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
	if (pid_fd < 0 && errno == EINVAL)	/* a kernel that knows only processes */
		pid_fd = (int)syscall(SYS_pidfd_open, tid, 0);
	if (pid_fd < 0)
		return errno == EINVAL && !recorder->in_namespace ? follow_later(recorder, tid) : -errno;
	error = bpf_map_update_elem(recorder->programs.tasks_fd, &pid_fd, &state, BPF_NOEXIST) ? -errno : 0;
	close(pid_fd);
	return error;
}

int ptw_recorder_killed(struct ptw_recorder *recorder, int pid)
{
	uint32_t key = (uint32_t)pid;
	uint32_t signal;

	if (foreign(recorder))
		return -ECHILD;
	if (bpf_map_lookup_elem(recorder->programs.killed_fd, &key, &signal))
		return errno == ENOENT ? 0 : -errno;
	return (int)signal;
}

int ptw_recorder_fd(const struct ptw_recorder *recorder)
{
	return recorder->ready_fd;
}

int ptw_recorder_take(struct ptw_recorder *recorder, int all, struct ptw_batch **ret)
{
	struct ptw_batch *batch;
	uint64_t readable;

	if (foreign(recorder))
		return -ECHILD;
	pthread_mutex_lock(&recorder->lock);
	if (all || !recorder->running) {
		while (!recorder->ready.head && drain(recorder))
			;
		if (!recorder->ready.head && recorder->filling && recorder->filling->all)
			hand_over(recorder);
	}
	batch = pop(&recorder->ready);
	recorder->ready_count -= batch != NULL;
	if (!recorder->ready.head && read(recorder->ready_fd, &readable, sizeof(readable)) < 0)
		readable = 0;	/* it was not readable: nothing to clear */
	pthread_mutex_unlock(&recorder->lock);
	*ret = batch;
	return batch != NULL;
}

int ptw_recorder_release(struct ptw_recorder *recorder, struct ptw_batch *batch)
{
	const uint64_t one = 1;
	int hungry;

	if (foreign(recorder))
		return -ECHILD;
	pthread_mutex_lock(&recorder->lock);
	ptw_batch_clear(batch);
	push(&recorder->spare, batch);
	hungry = recorder->hungry;
	recorder->hungry = 0;
	pthread_mutex_unlock(&recorder->lock);
	if (hungry && write(recorder->spare_fd, &one, sizeof(one)) < 0)
		return -errno;
	return 0;
}

uint32_t ptw_recorder_backlog(const struct ptw_recorder *recorder)
{
	struct ptw_recorder *mutable = (struct ptw_recorder *)recorder;
	uint32_t count;

	if (foreign(recorder))
		return 0;
	pthread_mutex_lock(&mutable->lock);
	count = recorder->ready_count;
	pthread_mutex_unlock(&mutable->lock);
	return count;
}

int ptw_recorder_totals(const struct ptw_recorder *recorder, struct ptw_totals *ret)
{
	struct ptw_recorder *mutable = (struct ptw_recorder *)recorder;

	if (foreign(recorder))
		return -ECHILD;
	*ret = (struct ptw_totals){0};
	for (unsigned int kind = 0; kind < PTW_RECORD_EVENTS; kind++) {
		for (unsigned int i = 0; i < PTW_CPUS; i++) {
			const struct ptw_cpu_counts *counts = &recorder->programs.counts[i];

			ret->produced[kind] += __atomic_load_n(&counts->produced[kind], __ATOMIC_RELAXED);
			ret->submitted[kind] += __atomic_load_n(&counts->submitted[kind], __ATOMIC_RELAXED);
		}
		ret->lost[kind] = __atomic_load_n(&recorder->programs.losses->events[kind], __ATOMIC_RELAXED);
	}
	ret->lost[PTW_RECORD_FILE] = __atomic_load_n(&recorder->programs.losses->files, __ATOMIC_RELAXED);
	ret->compat = __atomic_load_n(&recorder->programs.losses->compat, __ATOMIC_RELAXED);
	ret->io_uring = __atomic_load_n(&recorder->programs.losses->io_uring, __ATOMIC_RELAXED);
	ret->tasks = __atomic_load_n(&recorder->programs.losses->tasks, __ATOMIC_RELAXED);
	pthread_mutex_lock(&mutable->lock);
	for (unsigned int kind = 0; kind < PTW_RECORD_KINDS; kind++)
		ret->taken[kind] = recorder->taken[kind];
	ret->malformed = recorder->malformed;
	ret->wakeups = recorder->wakeups;
	ret->starved = recorder->starved;
	pthread_mutex_unlock(&mutable->lock);
	return 0;
}

uint64_t ptw_recorder_lost(const struct ptw_recorder *recorder, uint32_t loss, uint32_t number)
{
	const uint64_t *by_number[PTW_LOSS_NO_EXIT + 1];

	if (foreign(recorder) || loss > PTW_LOSS_NO_EXIT || number > PTW_NUMBERS)
		return 0;
	by_number[PTW_LOSS_RING_FULL] = recorder->programs.losses->ring_full;
	by_number[PTW_LOSS_NO_MEMORY] = recorder->programs.losses->no_memory;
	by_number[PTW_LOSS_NO_EXIT] = recorder->programs.losses->no_exit;
	return __atomic_load_n(&by_number[loss][number], __ATOMIC_RELAXED);
}
