/* SPDX-License-Identifier: MIT */
/*
 * The functions we stand in front of, as the next library in line has them.
 *
 * REAL(name)(...) and GLIBC(name)(...) are right at any time, also before our constructor ran. Resolving takes no allocation when the
 * function exists (glibc's dlsym allocates only to describe an error); the mutex functions, which an allocator may
 * use, come first, so an allocator that asks for them in the midst of it finds them. Thread-safe: everybody who
 * resolves finds the same.
 */
#ifndef PTW_REAL_H
#define PTW_REAL_H

#include "sys.h"

#include <grp.h>
#include <malloc.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <threads.h>
#include <time.h>

/* X(name, version): version where more than one exists and the default matters, else NULL */
#define PTW_REAL_FUNCTIONS(X)                         \
	X(malloc, NULL)                               \
	X(free, NULL)                                 \
	X(calloc, NULL)                               \
	X(realloc, NULL)                              \
	X(reallocarray, NULL)                         \
	X(memalign, NULL)                             \
	X(aligned_alloc, NULL)                        \
	X(posix_memalign, NULL)                       \
	X(valloc, NULL)                               \
	X(pvalloc, NULL)                              \
	X(malloc_usable_size, NULL)                   \
	X(_IO_file_doallocate, NULL)                  \
	X(pthread_mutex_lock, NULL)                   \
	X(pthread_mutex_unlock, NULL)                 \
	X(pthread_mutex_trylock, NULL)                \
	X(pthread_mutex_timedlock, NULL)              \
	X(pthread_cond_wait, "GLIBC_2.3.2")           \
	X(pthread_cond_timedwait, "GLIBC_2.3.2")      \
	X(pthread_cond_signal, "GLIBC_2.3.2")         \
	X(pthread_cond_broadcast, "GLIBC_2.3.2")      \
	X(pthread_rwlock_rdlock, NULL)                \
	X(pthread_rwlock_tryrdlock, NULL)             \
	X(pthread_rwlock_timedrdlock, NULL)           \
	X(pthread_rwlock_wrlock, NULL)                \
	X(pthread_rwlock_trywrlock, NULL)             \
	X(pthread_rwlock_timedwrlock, NULL)           \
	X(pthread_rwlock_unlock, NULL)                \
	X(pthread_spin_lock, NULL)                    \
	X(pthread_spin_trylock, NULL)                 \
	X(pthread_spin_unlock, NULL)                  \
	X(pthread_barrier_init, NULL)                 \
	X(pthread_barrier_wait, NULL)                 \
	X(sem_wait, NULL)                             \
	X(sem_trywait, NULL)                          \
	X(sem_timedwait, NULL)                        \
	X(sem_post, NULL)                             \
	X(pthread_create, NULL)                       \
	X(pthread_join, NULL)                         \
	X(pthread_tryjoin_np, NULL)                   \
	X(pthread_timedjoin_np, NULL)                 \
	X(pthread_detach, NULL)                       \
	X(fork, NULL)                                 \
	X(execve, NULL)                               \
	X(execvp, NULL)                               \
	X(execvpe, NULL)                              \
	X(__register_atfork, NULL)                    \
	X(dlclose, NULL)                              \
	X(mtx_lock, NULL)                             \
	X(mtx_trylock, NULL)                          \
	X(mtx_timedlock, NULL)                        \
	X(mtx_unlock, NULL)                           \
	X(cnd_wait, NULL)                             \
	X(cnd_timedwait, NULL)                        \
	X(cnd_signal, NULL)                           \
	X(cnd_broadcast, NULL)                        \
	X(thrd_create, NULL)                          \
	X(thrd_join, NULL)                            \
	X(thrd_detach, NULL)                          \
	X(thrd_exit, NULL)                            \
	X(pthread_exit, NULL)                         \
	X(pthread_cancel, NULL)                       \
	X(pthread_kill, NULL)                         \
	X(pthread_getattr_np, NULL)                   \
	X(getpid, NULL)                               \
	X(pthread_setname_np, NULL)                   \
	X(pthread_getname_np, NULL)                   \
	X(getppid, NULL)                              \
	X(pthread_mutex_init, NULL)                   \
	X(pthread_mutex_destroy, NULL)                \
	X(pthread_mutex_consistent, NULL)             \
	X(pthread_spin_init, NULL)                    \
	X(pthread_spin_destroy, NULL)                 \
	X(pthread_cond_init, "GLIBC_2.3.2")           \
	X(pthread_cond_destroy, "GLIBC_2.3.2")        \
	X(pthread_rwlock_init, NULL)                  \
	X(pthread_rwlock_destroy, NULL)               \
	X(pthread_barrier_destroy, NULL)              \
	X(sem_init, NULL)                             \
	X(sem_open, NULL)                             \
	X(sem_close, NULL)                            \
	X(sem_destroy, NULL)                          \
	X(sem_getvalue, NULL)                         \
	X(pthread_once, NULL)                         \
	X(call_once, NULL)                            \
	X(mtx_init, NULL)                             \
	X(mtx_destroy, NULL)                          \
	X(cnd_init, NULL)                             \
	X(cnd_destroy, NULL)                          \
	X(setuid, NULL)                               \
	X(setgid, NULL)                               \
	X(seteuid, NULL)                              \
	X(setegid, NULL)                              \
	X(setreuid, NULL)                             \
	X(setregid, NULL)                             \
	X(setresuid, NULL)                            \
	X(setresgid, NULL)                            \
	X(setgroups, NULL)                            \
	X(initgroups, NULL)                           \
	X(clone, NULL)                                \
	X(clock, NULL)                                \
	X(clock_gettime, NULL)                        \
	X(clock_getres, NULL)                         \
	X(gettimeofday, NULL)                         \
	X(time, NULL)                                 \
	X(sigaction, NULL)                            \
	X(signal, NULL)                               \
	X(__sysv_signal, NULL)                        \
	X(sigprocmask, NULL)                          \
	X(pthread_sigmask, NULL)                      \
	X(sigsuspend, NULL)                           \
	X(sigaltstack, NULL)                          \
	X(sigpending, NULL)                           \
	X(sigtimedwait, NULL)                         \
	X(sigwaitinfo, NULL)                          \
	X(sigwait, NULL)                              \
	X(pause, NULL)                                \
	X(read, NULL)                                 \
	X(__read_chk, NULL)                           \
	X(signalfd, NULL)                             \
	X(epoll_ctl, NULL)                            \
	X(ptrace, NULL)                               \
	X(siglongjmp, NULL)                           \
	X(longjmp, NULL)                              \
	X(_longjmp, NULL)                             \
	X(__longjmp_chk, NULL)                        \
	X(kill, NULL)                                 \
	X(sigqueue, NULL)                             \
	X(pthread_sigqueue, NULL)                     \
	X(timer_create, NULL)                         \
	X(timer_delete, NULL)                         \
	X(timer_getoverrun, NULL)                     \
	X(timer_settime, NULL)                        \
	X(timer_gettime, NULL)                        \
	X(setitimer, NULL)                            \
	X(getitimer, NULL)                            \
	X(alarm, NULL)                                \
	X(nanosleep, NULL)                            \
	X(clock_nanosleep, NULL)                      \
	X(usleep, NULL)                               \
	X(sleep, NULL)                                \
	X(thrd_sleep, NULL)                           \
	X(wait, NULL)                                 \
	X(waitpid, NULL)                              \
	X(wait3, NULL)                                \
	X(wait4, NULL)                                \
	X(waitid, NULL)                               \
	X(daemon, NULL)                               \
	X(forkpty, NULL)                              \
	X(close, NULL)                                \
	X(dup2, NULL)                                 \
	X(dup3, NULL)                                 \
	X(posix_spawn, NULL)                          \
	X(posix_spawnp, NULL)                         \
	/* newer than the rest: absent in older libraries, and then nobody calls them */ \
	X(pthread_mutex_clocklock, NULL)              \
	X(pthread_cond_clockwait, NULL)               \
	X(pthread_rwlock_clockrdlock, NULL)           \
	X(pthread_rwlock_clockwrlock, NULL)           \
	X(pthread_clockjoin_np, NULL)                 \
	X(sem_clockwait, NULL)                        \
	X(_Fork, NULL)                                \
	X(close_range, NULL)                          \
	X(closefrom, NULL)

int dlclose(void *);
ssize_t __read_chk(int, void *, size_t, size_t);
void __longjmp_chk(struct __jmp_buf_tag[1], int) __attribute__((noreturn));
void (*__sysv_signal(int, void (*)(int)))(int);
int _IO_file_doallocate(void *);
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);

struct ptw_real {
#define X(name, version) __typeof__(&name) name;
	PTW_REAL_FUNCTIONS(X)
#undef X
};

extern PTW_HIDDEN struct ptw_real ptw_real;

/* What our wrappers of thread operations call: glibc's functions, or in process mode ours (threading.c). */
extern PTW_HIDDEN struct ptw_real ptw_threading;

PTW_HIDDEN void ptw_real_init(void);

#define PTW_FUNCTION(table, name)                                                                    \
	(*(__builtin_expect(!__atomic_load_n(&table.name, __ATOMIC_RELAXED), 0) ? ptw_real_init() : (void)0, \
	   __atomic_load_n(&table.name, __ATOMIC_RELAXED)))

#define GLIBC(name) PTW_FUNCTION(ptw_real, name)
#define REAL(name) PTW_FUNCTION(ptw_threading, name)

#endif
