/* SPDX-License-Identifier: MIT */
/*
 * Calls every thread operation that libtthread stands in front of, errors and all. Prints what each returned, so that a
 * traced run can be compared with a plain one, and how often it called each: "count OPERATION N".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define OPERATIONS(X) \
	X(start) X(exit) X(create) X(join) X(mutex_lock) X(mutex_trylock) X(mutex_timedlock) X(mutex_unlock) X(cond_wait) \
	X(cond_timedwait) X(cond_signal) X(cond_broadcast) X(barrier_wait) X(rdlock) X(tryrdlock) X(timedrdlock) X(wrlock) \
	X(trywrlock) X(timedwrlock) X(rwunlock) X(sem_wait) X(sem_trywait) X(sem_timedwait) X(sem_post) X(spin_lock) \
	X(spin_trylock) X(spin_unlock) X(cond_wait_begin) X(barrier_arrive) X(fork) X(detach) X(cond_relock) \
	X(once) X(once_done)

enum {
#define X(name) N_##name,
	OPERATIONS(X)
#undef X
	OPERATION_COUNT,
};

static unsigned *counts; /* shared with fork children */

/* Call and count; `SAY` also prints the result. */
#define DO(name, call) (__atomic_add_fetch(&counts[N_##name], 1, __ATOMIC_RELAXED), (call))
#define SAY(name, call)                                             \
	do {                                                        \
		errno = 0;                                          \
		int r_ = DO(name, call);                            \
		printf("%s = %d, errno %d\n", #call, r_, errno);    \
	} while (0)
#define WAIT(name, call) (__atomic_add_fetch(&counts[N_cond_wait_begin], 1, __ATOMIC_RELAXED), \
			  __atomic_add_fetch(&counts[N_cond_relock], 1, __ATOMIC_RELAXED), DO(name, call))
#define BARRIER(call) (__atomic_add_fetch(&counts[N_barrier_arrive], 1, __ATOMIC_RELAXED), DO(barrier_wait, call))
#define THREADS(n) (__atomic_add_fetch(&counts[N_start], n, __ATOMIC_RELAXED), \
		    __atomic_add_fetch(&counts[N_exit], n, __ATOMIC_RELAXED))

static struct timespec soon(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_nsec += 2000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	return t;
}

static pthread_t start(void *(*routine)(void *), void *argument)
{
	pthread_t thread;
	THREADS(1);
	if (DO(create, pthread_create(&thread, NULL, routine, argument)))
		exit(9);
	return thread;
}

static void *finish(pthread_t thread)
{
	void *result;
	int error = DO(join, pthread_join(thread, &result));
	printf("joined %d\n", error);
	return result;
}

/* --- mutexes --- */

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, robust;

static void *try_plain(void *unused)
{
	struct timespec real, mono;
	SAY(mutex_trylock, pthread_mutex_trylock(&plain));
	real = soon(CLOCK_REALTIME);
	SAY(mutex_timedlock, pthread_mutex_timedlock(&plain, &real));
	mono = soon(CLOCK_MONOTONIC);
	SAY(mutex_timedlock, pthread_mutex_clocklock(&plain, CLOCK_MONOTONIC, &mono));
	return unused;
}

static void *die_with_robust(void *unused)
{
	SAY(mutex_lock, pthread_mutex_lock(&robust));
	return unused;
}

static void mutexes(void)
{
	pthread_mutexattr_t attributes;
	pthread_mutex_t checked, recursive;
	struct timespec until = soon(CLOCK_REALTIME);
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&checked, &attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&recursive, &attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_NORMAL);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &attributes);
	SAY(mutex_unlock, pthread_mutex_unlock(&checked));
	SAY(mutex_lock, pthread_mutex_lock(&checked));
	SAY(mutex_lock, pthread_mutex_lock(&checked));
	SAY(mutex_unlock, pthread_mutex_unlock(&checked));
	SAY(mutex_lock, pthread_mutex_lock(&recursive));
	SAY(mutex_trylock, pthread_mutex_trylock(&recursive));
	SAY(mutex_unlock, pthread_mutex_unlock(&recursive));
	SAY(mutex_unlock, pthread_mutex_unlock(&recursive));
	SAY(mutex_timedlock, pthread_mutex_timedlock(&plain, &until));
	finish(start(try_plain, NULL));
	SAY(mutex_unlock, pthread_mutex_unlock(&plain));
	finish(start(die_with_robust, NULL));
	SAY(mutex_lock, pthread_mutex_lock(&robust));
	printf("consistent %d\n", pthread_mutex_consistent(&robust));
	SAY(mutex_unlock, pthread_mutex_unlock(&robust));
}

static void spins(void)
{
	pthread_spinlock_t spin;
	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	SAY(spin_lock, pthread_spin_lock(&spin));
	SAY(spin_trylock, pthread_spin_trylock(&spin));
	SAY(spin_unlock, pthread_spin_unlock(&spin));
	SAY(spin_trylock, pthread_spin_trylock(&spin));
	SAY(spin_unlock, pthread_spin_unlock(&spin));
}

/* --- reader-writer locks --- */

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void *try_rwlock(void *unused)
{
	struct timespec real = soon(CLOCK_REALTIME), mono = soon(CLOCK_MONOTONIC);
	SAY(tryrdlock, pthread_rwlock_tryrdlock(&rwlock));
	SAY(trywrlock, pthread_rwlock_trywrlock(&rwlock));
	SAY(timedrdlock, pthread_rwlock_timedrdlock(&rwlock, &real));
	SAY(timedwrlock, pthread_rwlock_timedwrlock(&rwlock, &real));
	SAY(timedrdlock, pthread_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &mono));
	SAY(timedwrlock, pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &mono));
	return unused;
}

static void rwlocks(void)
{
	struct timespec real = soon(CLOCK_REALTIME), mono = soon(CLOCK_MONOTONIC);
	SAY(rdlock, pthread_rwlock_rdlock(&rwlock));
	SAY(tryrdlock, pthread_rwlock_tryrdlock(&rwlock));
	SAY(timedrdlock, pthread_rwlock_timedrdlock(&rwlock, &real));
	SAY(timedrdlock, pthread_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &mono));
	for (int i = 0; i < 4; i++)
		SAY(rwunlock, pthread_rwlock_unlock(&rwlock));
	SAY(trywrlock, pthread_rwlock_trywrlock(&rwlock));
	SAY(wrlock, pthread_rwlock_wrlock(&rwlock)); /* EDEADLK */
	finish(start(try_rwlock, NULL));
	SAY(rwunlock, pthread_rwlock_unlock(&rwlock));
	SAY(timedwrlock, pthread_rwlock_timedwrlock(&rwlock, &real));
	SAY(rwunlock, pthread_rwlock_unlock(&rwlock));
	SAY(timedwrlock, pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &mono));
	SAY(rwunlock, pthread_rwlock_unlock(&rwlock));
	SAY(wrlock, pthread_rwlock_wrlock(&rwlock));
	SAY(rwunlock, pthread_rwlock_unlock(&rwlock));
}

/* --- semaphores --- */

static void nothing(int number) { (void)number; }

static void semaphores(void)
{
	sem_t sem;
	struct timespec real, mono, bad = {0, 2000000000};
	struct sigaction action = {.sa_handler = nothing};
	sem_init(&sem, 0, 1);
	SAY(sem_wait, sem_wait(&sem));
	SAY(sem_trywait, sem_trywait(&sem));
	real = soon(CLOCK_REALTIME);
	SAY(sem_timedwait, sem_timedwait(&sem, &real));
	mono = soon(CLOCK_MONOTONIC);
	SAY(sem_timedwait, sem_clockwait(&sem, CLOCK_MONOTONIC, &mono));
	SAY(sem_timedwait, sem_timedwait(&sem, &bad));
	SAY(sem_post, sem_post(&sem));
	SAY(sem_trywait, sem_trywait(&sem));
	sem_init(&sem, 0, SEM_VALUE_MAX);
	SAY(sem_post, sem_post(&sem));
	sem_init(&sem, 0, 0);
	sigaction(SIGALRM, &action, NULL);
	ualarm(5000, 0);
	SAY(sem_wait, sem_wait(&sem)); /* EINTR */
	sem_t *named = sem_open("/ptweave-test", O_CREAT | O_EXCL, 0600, 1);
	sem_unlink("/ptweave-test");
	if (named != SEM_FAILED) {
		DO(sem_wait, sem_wait(named));
		DO(sem_post, sem_post(named));
		sem_close(named);
	}
}

/* --- conditions --- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int turn;

static void *ping(void *unused)
{
	for (int i = 0; i < 100; i++) {
		DO(mutex_lock, pthread_mutex_lock(&mutex));
		while (turn != 1)
			WAIT(cond_wait, pthread_cond_wait(&condition, &mutex));
		turn = 0;
		DO(cond_signal, pthread_cond_signal(&condition));
		DO(mutex_unlock, pthread_mutex_unlock(&mutex));
	}
	return unused;
}

static void unlock_after_cancel(void *message)
{
	printf("%s: trylock %d\n", (char *)message, DO(mutex_trylock, pthread_mutex_trylock(&mutex)));
	printf("%s: unlock %d\n", (char *)message, DO(mutex_unlock, pthread_mutex_unlock(&mutex)));
}

static volatile int waiting;

static void *wait_for_ever(void *unused)
{
	DO(mutex_lock, pthread_mutex_lock(&mutex));
	pthread_cleanup_push(unlock_after_cancel, "cancelled");
	waiting = 1;
	for (;;)
		WAIT(cond_wait, pthread_cond_wait(&condition, &mutex));
	pthread_cleanup_pop(0);
	return unused;
}

static void conditions(void)
{
	struct timespec until;
	pthread_t other = start(ping, NULL);
	for (int i = 0; i < 100; i++) {
		DO(mutex_lock, pthread_mutex_lock(&mutex));
		turn = 1;
		DO(cond_broadcast, pthread_cond_broadcast(&condition));
		while (turn != 0)
			WAIT(cond_wait, pthread_cond_wait(&condition, &mutex));
		DO(mutex_unlock, pthread_mutex_unlock(&mutex));
	}
	finish(other);
	DO(mutex_lock, pthread_mutex_lock(&mutex));
	until = soon(CLOCK_REALTIME);
	printf("timedwait %d\n", WAIT(cond_timedwait, pthread_cond_timedwait(&condition, &mutex, &until)));
	until = soon(CLOCK_MONOTONIC);
	printf("clockwait %d\n", WAIT(cond_timedwait, pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until)));
	DO(mutex_unlock, pthread_mutex_unlock(&mutex));
	other = start(wait_for_ever, NULL);
	while (!waiting)
		usleep(100);
	DO(mutex_lock, pthread_mutex_lock(&mutex)); /* it waits now */
	DO(mutex_unlock, pthread_mutex_unlock(&mutex));
	pthread_cancel(other);
	printf("cancelled thread %d\n", finish(other) == PTHREAD_CANCELED);
}

/* --- barriers --- */

static pthread_barrier_t barrier;
static unsigned serials;

static void *meet(void *unused)
{
	for (int i = 0; i < 50; i++)
		if (BARRIER(pthread_barrier_wait(&barrier)) == PTHREAD_BARRIER_SERIAL_THREAD)
			__atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
	return unused;
}

static void barriers(void)
{
	pthread_t threads[3];
	printf("barrier of none %d\n", pthread_barrier_init(&barrier, NULL, 0));
	for (int round = 0; round < 2; round++) {
		pthread_barrier_init(&barrier, NULL, 4);
		for (int i = 0; i < 3; i++)
			threads[i] = start(meet, NULL);
		meet(NULL);
		for (int i = 0; i < 3; i++)
			finish(threads[i]);
		pthread_barrier_destroy(&barrier);
	}
	printf("serial threads %u\n", serials);
}

/* --- threads --- */

static sem_t gate;
static pthread_key_t key;

static void destroy(void *value)
{
	DO(mutex_lock, pthread_mutex_lock(&mutex)); /* destructors are still part of the thread */
	DO(mutex_unlock, pthread_mutex_unlock(&mutex));
	printf("destructor %s\n", (char *)value);
}

static void *leave_by_exit(void *value)
{
	DO(sem_wait, sem_wait(&gate));
	pthread_setspecific(key, "of the key");
	pthread_exit(value);
}

static void *do_nothing(void *value) { return value; }

static void *set_flag(void *flag)
{
	__atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void thread_calls(void)
{
	pthread_t thread;
	pthread_attr_t attributes;
	void *result = NULL;
	static int flag;
	struct timespec until;
	sem_init(&gate, 0, 0);
	pthread_key_create(&key, destroy);
	thread = start(leave_by_exit, "the value");
	SAY(join, pthread_tryjoin_np(thread, &result));
	until = soon(CLOCK_REALTIME);
	SAY(join, pthread_timedjoin_np(thread, &result, &until));
	until = soon(CLOCK_MONOTONIC);
	SAY(join, pthread_clockjoin_np(thread, &result, CLOCK_MONOTONIC, &until));
	SAY(join, pthread_join(pthread_self(), &result)); /* EDEADLK */
	DO(sem_post, sem_post(&gate));
	printf("left with %s\n", (char *)finish(thread));
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 1ul << 46);
	SAY(create, pthread_create(&thread, &attributes, do_nothing, NULL)); /* no room for such a stack */
	pthread_attr_setstacksize(&attributes, 16384); /* PTHREAD_STACK_MIN */
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	THREADS(1);
	SAY(create, pthread_create(&thread, &attributes, set_flag, &flag));
	while (!__atomic_load_n(&flag, __ATOMIC_ACQUIRE))
		usleep(100);
	thread = start(do_nothing, NULL);
	SAY(detach, pthread_detach(thread));
}

/* --- C11 --- */

static mtx_t mtx;
static cnd_t cnd;
static bool ready;

static int c11_thread(void *unused)
{
	(void)unused;
	SAY(mutex_trylock, mtx_trylock(&mtx));
	DO(mutex_lock, mtx_lock(&mtx));
	ready = true;
	DO(cond_signal, cnd_signal(&cnd));
	DO(mutex_unlock, mtx_unlock(&mtx));
	DO(mutex_lock, mtx_lock(&mtx));
	DO(cond_broadcast, cnd_broadcast(&cnd));
	DO(mutex_unlock, mtx_unlock(&mtx));
	thrd_exit(42);
}

static int c11_nothing(void *unused) { return unused != NULL; }

static void c11(void)
{
	thrd_t thread;
	int result = 0;
	struct timespec until = soon(CLOCK_REALTIME);
	mtx_init(&mtx, mtx_timed);
	cnd_init(&cnd);
	DO(mutex_lock, mtx_lock(&mtx));
	THREADS(1);
	DO(create, thrd_create(&thread, c11_thread, NULL));
	usleep(20000);
	while (!ready)
		WAIT(cond_wait, cnd_wait(&cnd, &mtx));
	DO(mutex_unlock, mtx_unlock(&mtx));
	SAY(join, thrd_join(thread, &result));
	printf("c11 thread %d\n", result);
	SAY(mutex_timedlock, mtx_timedlock(&mtx, &until));
	until = soon(CLOCK_REALTIME);
	printf("cnd_timedwait %d\n", WAIT(cond_timedwait, cnd_timedwait(&cnd, &mtx, &until)));
	DO(mutex_unlock, mtx_unlock(&mtx));
	THREADS(1);
	SAY(create, thrd_create(&thread, c11_nothing, NULL));
	SAY(detach, thrd_detach(thread));
	usleep(20000);
}

/* --- once-only calls --- */

static pthread_once_t control = PTHREAD_ONCE_INIT, inner = PTHREAD_ONCE_INIT, left = PTHREAD_ONCE_INIT;
static once_flag flag = ONCE_FLAG_INIT;

static void run_nothing(void) {}

static void initialise(void)
{
	SAY(once_done, pthread_once(&inner, run_nothing));
	usleep(20000);
}

static void leave(void) { pthread_exit(NULL); }

static void *run_once(void *unused)
{
	(void)unused;
	DO(once, pthread_once(&control, initialise));
	pthread_once(&control, initialise); /* nothing new */
	DO(once, call_once(&flag, run_nothing));
	return NULL;
}

static void *leave_once(void *unused)
{
	pthread_once(&left, leave);
	return unused;
}

static void onces(void)
{
	const void *objects[] = { &control, &inner, &left, &flag };
	for (unsigned i = 0; i < sizeof objects / sizeof *objects; i++)
		fprintf(stderr, "once %lu\n", (unsigned long)objects[i]);
	SAY(once_done, pthread_once(&control, initialise));
	SAY(once_done, (call_once(&flag, run_nothing), 0));
	for (int i = 0; i < 2; i++)
		finish(start(run_once, NULL));
	finish(start(leave_once, NULL));
	SAY(once_done, pthread_once(&left, run_nothing));
	control = (pthread_once_t)PTHREAD_ONCE_INIT; /* another one lies there */
	SAY(once_done, pthread_once(&control, run_nothing));
	finish(start(run_once, NULL));
}

/* --- fork --- */

static void forks(void)
{
	int status;
	fflush(stdout);
	__atomic_add_fetch(&counts[N_start], 1, __ATOMIC_RELAXED);
	pid_t child = DO(fork, fork());
	if (child == 0) {
		DO(mutex_lock, pthread_mutex_lock(&mutex));
		finish(start(do_nothing, NULL));
		DO(mutex_unlock, pthread_mutex_unlock(&mutex));
		fflush(stdout);
		_exit(7);
	}
	waitpid(child, &status, 0);
	printf("child %d\n", WEXITSTATUS(status));
}

static const char *const names[] = {
#define X(name) #name,
	OPERATIONS(X)
#undef X
};

int main(void)
{
	counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	THREADS(1);
	mutexes();
	spins();
	rwlocks();
	semaphores();
	conditions();
	barriers();
	thread_calls();
	c11();
	onces();
	forks();
	for (int i = 0; i < OPERATION_COUNT; i++)
		fprintf(stderr, "count %s %u\n", names[i], counts[i]);
	return 3;
}
