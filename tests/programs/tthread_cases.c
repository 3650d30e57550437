/* SPDX-License-Identifier: MIT */
/* Programs that are awkward to trace, by name. Each prints what it finds, the same traced or not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern char **environ;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned long total;

static void *add(void *times)
{
	for (size_t i = 0; i < (size_t)times; i++) {
		pthread_mutex_lock(&mutex);
		total++;
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

static void in_threads(unsigned threads, size_t times)
{
	pthread_t ids[1024];
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, add, (void *)times))
			exit(9);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	printf("total %lu\n", total);
}

/* 200 threads that all start, and all run, at once */
static pthread_barrier_t all;

static void *meet(void *unused)
{
	pthread_barrier_wait(&all);
	add((void *)20);
	return unused;
}

static void many(void)
{
	pthread_t ids[200];
	pthread_barrier_init(&all, NULL, 200);
	for (unsigned i = 0; i < 200; i++)
		if (pthread_create(&ids[i], NULL, meet, NULL))
			exit(9);
	for (unsigned i = 0; i < 200; i++)
		pthread_join(ids[i], NULL);
	printf("total %lu\n", total);
}

static void churn(void)
{
	for (unsigned i = 0; i < 300; i++)
		in_threads(2, 1);
}

/* the numbers of descriptors, also while threads start */
static void *open_often(void *worst)
{
	for (int i = 0; i < 3000; i++) {
		int fd = open("/dev/null", O_RDONLY);
		if (fd > *(int *)worst)
			*(int *)worst = fd;
		close(fd);
	}
	return NULL;
}

static void descriptors(void)
{
	pthread_t opener;
	int worst = 0, first = open("/dev/null", O_RDONLY);
	printf("first %d\n", first);
	close(first);
	pthread_create(&opener, NULL, open_often, &worst);
	in_threads(100, 1);
	pthread_join(opener, NULL);
	printf("worst %d\n", worst);
	fflush(stdout);
	execlp("ls", "ls", "/proc/self/fd", NULL);
}

static void closes_all(void)
{
	syscall(SYS_close_range, 3, ~0u, 0);
	int taken[1100];
	for (int i = 0; i < 1000; i++)
		taken[i] = open("/dev/null", O_RDWR);
	in_threads(4, 10);
	printf("highest %d\n", taken[999]);
}

static void fork_all_ways(void)
{
	int status;
	pid_t child;
	char *const echo[] = {"echo", "spawned", NULL};
	in_threads(2, 5);
	fflush(stdout);
	if ((child = fork()) == 0) {
		in_threads(2, 5);
		fflush(stdout);
		_exit(1);
	}
	waitpid(child, &status, 0);
	printf("fork %d\n", WEXITSTATUS(status));
	fflush(stdout);
	if ((child = (pid_t)syscall(SYS_fork)) == 0) {
		add((void *)5);
		_exit(2);
	}
	waitpid(child, &status, 0);
	printf("raw fork %d\n", WEXITSTATUS(status));
	fflush(stdout);
	if ((child = vfork()) == 0) {
		execlp("true", "true", NULL);
		_exit(9);
	}
	waitpid(child, &status, 0);
	printf("vfork %d\n", WEXITSTATUS(status));
	fflush(stdout);
	posix_spawnp(&child, "echo", NULL, NULL, echo, environ);
	waitpid(child, &status, 0);
	printf("system %d\n", WEXITSTATUS(system("exit 4")));
	FILE *from = popen("echo popened", "r");
	char line[32] = "";
	if (fgets(line, sizeof line, from))
		printf("%s", line);
	pclose(from);
	if ((child = fork()) == 0) {
		if (fork() == 0) {
			add((void *)3);
			_exit(0);
		}
		wait(NULL);
		fflush(stdout);
		execlp("echo", "echo", "executed", NULL);
	}
	waitpid(child, &status, 0);
	in_threads(2, 5);
}

/* fork while other threads lock, log and start threads */
static volatile int stop, forks;

enum { FORKS = 40, STARTED = 4, ROUNDS = 10 }; /* of a busy thread, at most, until the next fork has ended: the more
						* are logged the faster this is, and each record has a clock of all threads */

static void *busy(void *endless)
{
	for (int started = 0, rounds = 0; !stop;) {
		pthread_t id;
		if (!endless && rounds >= ROUNDS * (forks + 1)) {
			usleep(20);
			continue;
		}
		add((void *)50);
		rounds++;
		if (started >= STARTED * (forks + 1))
			continue;
		started++;
		if (pthread_create(&id, NULL, add, (void *)1) == 0)
			pthread_join(id, NULL);
	}
	return endless;
}

static void fork_while_busy(void)
{
	pthread_t ids[3];
	int good = 0, status;
	for (int i = 0; i < 3; i++)
		pthread_create(&ids[i], NULL, busy, NULL);
	for (; forks < FORKS; forks++) {
		pid_t child = fork();
		if (child == 0) {
			pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
			pthread_mutex_lock(&own);
			pthread_mutex_unlock(&own);
			_exit(5);
		}
		waitpid(child, &status, 0);
		good += WIFEXITED(status) && WEXITSTATUS(status) == 5;
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(ids[i], NULL);
	printf("children %d\n", good);
}

/* handlers that use semaphores, while the same thread logs */
static sem_t semaphore;
static volatile unsigned long handled;
static sigjmp_buf away;
static volatile int jump;

static void handler(int number)
{
	(void)number;
	sem_post(&semaphore);
	handled++;
	if (jump && handled % 3 == 0)
		siglongjmp(away, 1);
}

static void alarm_every(int us)
{
	struct itimerval every = {{0, us}, {0, us}};
	setitimer(ITIMER_REAL, &every, NULL);
}

static void signals(void)
{
	static char stack[65536];
	stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	int posts = 0;
	sem_init(&semaphore, 0, 0);
	for (int round = 0; round < 2; round++) {
		sigaction(SIGALRM, &action, NULL);
		alarm_every(100);
		while (handled < 300ul * (round + 1))
			add((void *)100);
		alarm_every(0);
		sigaltstack(&other, NULL);
		action.sa_flags |= SA_ONSTACK;
	}
	sem_getvalue(&semaphore, &posts);
	printf("posts %s\n", (unsigned long)posts == handled ? "equal" : "differ");
	fprintf(stderr, "handled %lu locked %lu\n", handled, total);
}

static void jumps(void)
{
	struct sigaction action = {.sa_handler = handler};
	pthread_spinlock_t spin;
	volatile unsigned locks = 0;
	jump = 1;
	sigaction(SIGALRM, &action, NULL);
	pthread_spin_init(&spin, 0);
	alarm_every(100);
	sigsetjmp(away, 1);
	while (handled < 600) {
		locks++;
		pthread_spin_trylock(&spin); /* no lock that the jump could leave held for ever */
		pthread_spin_unlock(&spin);
	}
	alarm_every(0);
	puts("done");
}

/* a tiny alternate stack must be enough for a handler that posts */
static void tiny_stack(void)
{
	size_t size = (size_t)sysconf(_SC_MINSIGSTKSZ) + 2048;
	stack_t other = {.ss_sp = malloc(size), .ss_size = size};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	sem_init(&semaphore, 0, 0);
	sigaltstack(&other, NULL);
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	printf("handled %lu\n", handled);
}

/* locks taken on a stack whose bottom holds nonsense, as coroutine libraries make them */
static ucontext_t home, coroutine;

static void on_other_stack(void)
{
	add((void *)10);
	swapcontext(&coroutine, &home);
}

__attribute__((naked, used)) static void enter(void (*function)(void), void *stack)
{
	(void)function, (void)stack;
	__asm__("push %rbp\n mov %rsp, %rbp\n mov %rsi, %rsp\n call *%rdi\n mov %rbp, %rsp\n pop %rbp\n ret");
}

static void ten_times(void) { add((void *)10); }

static void coroutines(void)
{
	static unsigned long stack[8192];
	for (unsigned i = 0; i < 8192; i++)
		stack[i] = 0xdeaddeaddeaddead;
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = sizeof stack / 2;
	makecontext(&coroutine, on_other_stack, 0);
	swapcontext(&home, &coroutine);
	enter(ten_times, &stack[8000]);
	printf("total %lu\n", total);
}

/* how often the marker ran, counted by a hardware breakpoint on it, and how many operations we made */
static void marker(void)
{
	void *address = dlsym(RTLD_DEFAULT, "ptweave_mark");
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_BREAKPOINT, .size = sizeof attributes, .bp_type = 4 /* HW_BREAKPOINT_X */,
		.bp_addr = (unsigned long)address, .bp_len = sizeof(long), .exclude_kernel = 1, .disabled = 1,
	};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	unsigned long ran = 0;
	int fd = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
	if (fd < 0 || !address) {
		printf("no breakpoint: %s\n", address ? strerror(errno) : "not traced");
		return;
	}
	sem_init(&semaphore, 0, 0);
	sigaction(SIGALRM, &action, NULL);
	alarm_every(500);
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	while (handled < 50)
		add((void *)10);
	alarm_every(0);
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	if (read(fd, &ran, sizeof ran) == sizeof ran)
		printf("marker %lu operations %lu\n", ran, 2 * total + handled);
}

static void killed(void)
{
	puts("running");
	fflush(stdout);
	in_threads(3, 1ul << 40);
}

/* locks until told to stop, so that a supervisor can die meanwhile */
static void outlive(void)
{
	char byte;
	puts("running");
	fflush(stdout);
	pthread_t id;
	pthread_create(&id, NULL, busy, &byte);
	if (read(0, &byte, 1) < 0)
		exit(9);
	stop = 1;
	pthread_join(id, NULL);
	puts("outlived");
	if (fork() == 0) {
		add((void *)2);
		_exit(0);
	}
	wait(NULL);
}

/* more than the table of objects holds */
static void objects(void)
{
	enum { COUNT = 300000 };
	pthread_mutex_t *mutexes = calloc(COUNT, sizeof *mutexes);
	for (unsigned i = 0; i < COUNT; i++) {
		pthread_mutex_lock(&mutexes[i]);
		pthread_mutex_unlock(&mutexes[i]);
	}
	puts("done");
}

static void storm(void) { in_threads(4, 60000); }

static void plain(void) { in_threads(4, 100); }

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"many", many}, {"churn", churn}, {"descriptors", descriptors}, {"closes_all", closes_all},
	{"fork_all_ways", fork_all_ways}, {"fork_while_busy", fork_while_busy}, {"signals", signals}, {"jumps", jumps},
	{"tiny_stack", tiny_stack}, {"coroutines", coroutines}, {"marker", marker}, {"killed", killed},
	{"outlive", outlive}, {"objects", objects}, {"storm", storm}, {"plain", plain},
};

int main(int count, char **words)
{
	for (unsigned i = 0; count == 2 && i < sizeof cases / sizeof cases[0]; i++)
		if (strcmp(words[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	return 2;
}
