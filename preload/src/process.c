/* SPDX-License-Identifier: MIT */
/*
 * The process's own handshakes: in the constructor, in fork children, and for threads on the process's connection.
 *
 * What happens without an answer: no supervisor, or one that hung up or refused: one line, and the process goes on
 * untraced. One that is there and does not answer in time: one line and exit status 3, because a run that was asked to
 * be traced must not silently be less. Threads wait for an answer only where the supervisor said so (an engine that has
 * to be attached to them): else their hello is read when it is drained next.
 *
 * Fork: the child handler runs while the child has one thread; it makes a connection and lists of its own. Children
 * that do not run fork handlers (native _Fork, raw clone) find *ptw_live wiped and are not traced; children that share memory
 * (vfork, posix_spawn) log as the thread that made them, which waits meanwhile.
 */
#define _GNU_SOURCE
#include "process.h"

#include "fork.h"
#include "heap.h"
#include "kept_preload.h"
#include "last_key.h"
#include "notice.h"
#include "own_work.h"
#include "pages.h"
#include "probe.h"
#include "real.h"
#include "tag.h"
#include "watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

PTW_CHANGING struct ptw_process ptw_process;

static pthread_key_t end_key;

enum { LAST_ROUND = 4 }; /* PTHREAD_DESTRUCTOR_ITERATIONS: other destructors log until then */

static void give_up(const char *line)
{
	__atomic_store_n(&ptw_process.traced, 0, __ATOMIC_RELAXED);
	__atomic_store_n(ptw_live, 0, __ATOMIC_RELAXED);
	ptw_say(line);
	ptw_notices_alone();
}

/* Act on what came of a handshake. True: go. */
static bool settle(enum ptw_outcome outcome)
{
	switch (outcome) {
	case PTW_GO:
		return true;
	case PTW_REFUSED:
		give_up("the supervisor refused this process: it goes on untraced");
		return false;
	case PTW_GONE:
		give_up("the supervisor is gone: this process goes on untraced");
		return false;
	case PTW_TIMEOUT:
		break;
	}
	ptw_say("the supervisor does not answer: ending the program rather than running it untraced");
	PTW_SYS(SYS_exit_group, 3, 0, 0, 0, 0, 0);
	__builtin_unreachable();
}

static struct ptw_hello hello_of(enum ptw_hello_kind kind, uint64_t start_routine)
{
	return (struct ptw_hello){
		.kind = (uint16_t)kind,
		.pid = (uint32_t)ptw_getpid(),
		.tid = (uint32_t)ptw_gettid(),
		.tsc = ptw_tsc(),
		.list = ptw_list_index(&ptw_self.writer),
		.start_routine = start_routine,
		.marker = (uint64_t)&ptweave_mark,
	};
}

static enum ptw_outcome greet_as_thread(uint64_t start_routine)
{
	bool pseudo = ptw_process_mode && !ptw_is_main();
	struct ptw_hello hello = hello_of(pseudo ? PTW_HELLO_PSEUDO_THREAD : PTW_HELLO_THREAD, start_routine);
	hello.flags = pseudo ? ptw_shared->main_pid : 0;
	if (!ptw_peer_intact(&ptw_process.peer)) { /* the program closed what it did not open: make another */
		ptw_peer_deinit(&ptw_process.peer);
		int made = ptw_peer_init(&ptw_process.peer);
		if (made < 0)
			return made == -ETIMEDOUT ? PTW_TIMEOUT : PTW_GONE;
	}
	return ptw_hello_send(&ptw_process.peer, &hello, -1, -1);
}

static PTW_CHANGING enum ptw_outcome greeted; /* what came of the hello under way; whoever holds the lock has it */

void ptw_thread_greet(uint64_t serial, uint64_t start_routine)
{
	if (ptw_self.state != PTW_THREAD_NEW)
		return;
	ptw_self.state = PTW_THREAD_GREETING;
	ptw_self.serial = serial;
	ptw_self.top = (uint64_t)pthread_self(); /* the TCB lies at the end of the stack */
	ptw_writer_init(&ptw_self.writer, ptw_process.lists, (uint32_t)ptw_gettid(), serial, ptw_process.peer.socket);
	ptw_lock(ptw_process.lock);
	greeted = ptw_tracing() ? greet_as_thread(start_routine) : PTW_REFUSED;
	if (greeted == PTW_GO && !ptw_process.peer.awaited) {
		ptw_unlock(ptw_process.lock);
		ptw_self.state = PTW_THREAD_EXPECTED;
	}
}

void ptw_thread_greeted(void)
{
	if (ptw_self.state == PTW_THREAD_EXPECTED)
		ptw_self.state = PTW_THREAD_TRACED;
	if (ptw_self.state != PTW_THREAD_GREETING)
		return;
	bool go = ptw_tracing() && settle(greeted == PTW_GO ? ptw_welcome_await(&ptw_process.peer) : greeted);
	ptw_unlock(ptw_process.lock);
	ptw_self.state = go ? PTW_THREAD_TRACED : PTW_THREAD_UNTRACED;
	if (!go)
		ptw_writer_deinit(&ptw_self.writer);
}

void ptw_thread_attach(uint64_t serial, uint64_t start_routine)
{
	uint64_t mask;
	ptw_block_signals(&mask);
	ptw_thread_greet(serial, start_routine);
	ptw_thread_greeted();
	ptw_restore_signals(&mask);
}

void ptw_log_start(const struct ptw_frame *caller, uint64_t object, uint64_t serial, uint32_t parent)
{
	uint64_t now = ptw_tsc();
	struct ptw_event event = {PTW_START, object, 0, serial, parent};
	ptw_log(&event, caller, now, now);
}

static void log_exit(const struct ptw_frame *caller)
{
	uint64_t now = ptw_tsc();
	struct ptw_event event = {PTW_EXIT, pthread_self(), 0, ptw_self.serial, 0};
	ptw_log(&event, caller, now, now);
}

void ptw_process_resume(void)
{
	__atomic_store_n(ptw_live, ptw_process.traced, __ATOMIC_RELAXED);
	ptw_tags_resume();
}

void ptw_thread_end(const struct ptw_frame *caller)
{
	if (ptw_self.state != PTW_THREAD_TRACED)
		return;
	log_exit(caller);
	ptw_self.state = PTW_THREAD_UNTRACED;
	ptw_writer_deinit(&ptw_self.writer);
	ptw_tags_thread_end();
}

/* --- a whole process ------------------------------------------------------------------------------------------- */

/* The end of the main thread's stack: the environment's strings lie above every frame (System V ABI, process stack). */
static uint64_t main_stack_top(char **environment) { return environment ? (uint64_t)environment : 0; }

/* Connect, make lists (over `at`, in fork children) and shake hands. */
static void begin(enum ptw_hello_kind kind, void *at)
{
	int memfd = -1, made = ptw_peer_init(&ptw_process.peer);
	if (made == -EACCES) { /* it became another user */
		give_up("this user may not reach the supervisor: this process goes on untraced");
		return;
	}
	if (made < 0) {
		settle(made == -ETIMEDOUT ? PTW_TIMEOUT : PTW_GONE);
		return;
	}
	memfd = ptw_lists_init(at, &ptw_process.lists);
	if (memfd < 0) {
		give_up("no room for event lists (limit of descriptors, address space or file size): "
			"this process goes on untraced");
		ptw_peer_deinit(&ptw_process.peer);
		return;
	}
	ptw_writer_init(&ptw_self.writer, ptw_process.lists, (uint32_t)ptw_gettid(), ptw_self.serial,
			ptw_process.peer.socket);
	struct ptw_hello hello = hello_of(kind, 0);
	ptw_process.peer.watch_count =
		kind == PTW_HELLO_PROCESS ? ptw_watches_open(ptw_process.peer.watches) : 0;
	int tags = ptw_tags_begin();
	enum ptw_outcome outcome = ptw_hello_send(&ptw_process.peer, &hello, memfd, tags);
	bool go = settle(outcome == PTW_GO ? ptw_welcome_await(&ptw_process.peer) : outcome);
	ptw_close(memfd);
	if (tags >= 0)
		ptw_close(tags);
	if (!go) {
		ptw_watches_begin(ptw_process.peer.watches, ptw_process.peer.watch_count, false);
		ptw_peer_deinit(&ptw_process.peer);
		ptw_writer_deinit(&ptw_self.writer);
		if (!at)
			ptw_lists_deinit(ptw_process.lists);
		return;
	}
	ptw_self.state = PTW_THREAD_TRACED;
	ptw_notices_begin(ptw_process.lists);
	if (tags < 0)
		ptw_notice(PTW_NOTICE_LIMIT, NULL,
			   "no room for the event vector (limit of descriptors, address space or file size): tags are "
			   "not recorded");
	__atomic_store_n(&ptw_process.traced, 1, __ATOMIC_RELAXED);
	__atomic_store_n(ptw_live, 1, __ATOMIC_RELEASE);
}

static void fork_prepare(void) { ptw_self.fork_serial = ptw_tracing() ? ptw_next_serial() : 0; }

static void fork_parent(void)
{
	struct ptw_frame caller = PTW_CALLER;
	uint64_t now = ptw_tsc();
	if (ptw_self.forking || ptw_self.fork_serial == 0 || !ptw_tracing())
		return; /* fork() itself logs, and knows the child */
	struct ptw_event event = {PTW_FORK, 0, 0, ptw_self.fork_serial, 0};
	ptw_log(&event, &caller, now, now);
}

/* The thread may have the smallest stack that there is. */
static long begin_again(void *unused)
{
	(void)unused;
	begin(PTW_HELLO_FORK, ptw_process.lists);
	return 0;
}

static void fork_child(void)
{
	struct ptw_frame caller = PTW_CALLER;
	uint32_t parent = ptw_self.writer.tid;
	uint64_t mask;
	if (!ptw_process.traced || ptw_self.fork_serial == 0)
		return;
	ptw_block_signals(&mask);
	ptw_peer_deinit(&ptw_process.peer);
	*ptw_process.lock = 0;
	ptw_process.traced = 0;
	ptw_threads_forget();
	*ptw_process.serials = ptw_self.serial = 1;
	ptw_self.state = PTW_THREAD_UNTRACED;
	ptw_watches_forked();
	if (ptw_fork_on_stack(begin_again, NULL) != 0)
		begin_again(NULL);
	if (!ptw_process.traced) /* a put that the fork interrupted still writes: not into the parent's lists */
		PTW_SYS(SYS_mmap, ptw_process.lists, PTW_LISTS_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	ptw_restore_signals(&mask);
	if (ptw_process.traced)
		ptw_log_start(&caller, 0, ptw_self.fork_serial, parent);
}

PTW_EXPORT pid_t fork(void)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_tracing())
		return REAL(fork)();
	uint64_t enter = ptw_tsc();
	ptw_self.forking = 1;
	pid_t pid = REAL(fork)();
	ptw_self.forking = 0;
	if (pid != 0) {
		int error = errno;
		struct ptw_event event = {PTW_FORK, 0, pid > 0 ? pid : -error, pid > 0 ? ptw_self.fork_serial : 0,
					  pid > 0 ? (uint64_t)pid : 0};
		ptw_log(&event, &caller, enter, ptw_tsc());
	}
	return pid;
}

/* A library that goes away may be followed by another at its place, with other rules. */
PTW_EXPORT int dlclose(void *handle)
{
	int result = REAL(dlclose)(handle);
	if (ptw_tracing())
		ptw_unwind_forget();
	return result;
}

static void end_of_thread(void *round)
{
	struct ptw_frame caller = PTW_CALLER;
	if ((uintptr_t)round < LAST_ROUND) {
		pthread_setspecific(end_key, (void *)((uintptr_t)round + 1));
		return;
	}
	ptw_thread_finished(&caller);
}

void ptw_thread_watch_end(void)
{
	ptw_untracked_malloc++; /* values of high keys lie in a block of their own */
	pthread_setspecific(end_key, (void *)1);
	ptw_untracked_malloc--;
}

static void set_up(char **environment, const struct ptw_frame *caller)
{
	const char *path = getenv(PTW_SOCKET_VARIABLE);
	uint64_t mask;
	ptw_real_init();
	bool shared = ptw_heap_is_ours(); /* process mode, and there is shared memory */
	static uint64_t serials;
	static uint32_t lock;
	ptw_process.serials = shared ? &ptw_shared->serials : &serials;
	ptw_process.lock = shared ? &ptw_shared->handshake_lock : &lock;
	*ptw_process.serials = ptw_self.serial = 1;
	ptw_kept_preload_init(getenv("LD_PRELOAD"));
	bool watching = ptw_last_key(&end_key, end_of_thread);
	if (!path || !*path) {
		ptw_notices_alone();
		return;
	}
	struct sockaddr_un *address = &ptw_process.peer.address;
	if (strlen(path) >= sizeof address->sun_path) {
		ptw_say(PTW_SOCKET_VARIABLE " is too long: this process goes on untraced");
		ptw_notices_alone();
		return;
	}
	address->sun_family = AF_UNIX;
	memcpy(address->sun_path, path, strlen(path) + 1);
	long page = PTW_SYS(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ptw_process.objects = shared ? (struct ptw_object *)PTW_META_OBJECTS : ptw_objects_init();
	if ((page < 0 && page >= -4095) || !ptw_process.objects ||
	    PTW_SYS(SYS_madvise, page, 4096, MADV_WIPEONFORK, 0, 0, 0) != 0 ||
	    !watching) {
		ptw_say("no memory for libtthread: this process goes on untraced");
		ptw_notices_alone();
		return;
	}
	ptw_live = (uint32_t *)page;
	ptw_self.top = main_stack_top(environment);
	ptw_threads_init();
	ptw_block_signals(&mask);
	begin(PTW_HELLO_PROCESS, NULL);
	ptw_restore_signals(&mask);
	if (!ptw_process.traced)
		return;
	ptw_thread_watch_end();
	pthread_atfork(fork_prepare, fork_parent, fork_child);
	ptw_log_start(caller, pthread_self(), 0, 0);
	ptw_probes_begin();
	ptw_watches_begin(ptw_process.peer.watches, ptw_process.peer.watch_count, true);
}

__attribute__((constructor)) static void begin_process(int argc, char **argv, char **environment)
{
	struct ptw_frame caller = PTW_CALLER;
	(void)argc, (void)argv;
	ptw_own_work(PTW_OWN_WORK_BEGINS);
	set_up(environment, &caller);
	ptw_own_work(PTW_OWN_WORK_ENDS);
}

/* The thread that calls exit() says so; destructors that run after this one still log. */
__attribute__((destructor)) static void end_process(void)
{
	struct ptw_frame caller = PTW_CALLER;
	ptw_pages_boundary(); /* bytes that were changed are logged at boundaries */
	if (ptw_tracing() && ptw_self.state == PTW_THREAD_TRACED)
		log_exit(&caller);
}
