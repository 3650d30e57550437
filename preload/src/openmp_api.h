/* SPDX-License-Identifier: MIT */
/*
 * What compilers and programs call of OpenMP that orders threads; GCC's (libgomp): X(result, name, (parameters)), as
 * libgomp's manual ("The libgomp ABI", "Runtime Library Routines") and its symbols have them; LLVM's and Intel's libraries
 * have the same functions. Not those that only share work out, nor what compilers before GCC 4.9 called
 * (GOMP_parallel_start). The last parameters of GOMP_task came one by one: who passes fewer says so in its flags.
 */
#ifndef PTW_OPENMP_API_H
#define PTW_OPENMP_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct link_map;

typedef void ptw_openmp_body(void *data);
typedef void ptw_openmp_copy(void *to, void *from);

#define PTW_OPENMP_LOOP (ptw_openmp_body *, void *, unsigned, long, long, long, unsigned)
#define PTW_OPENMP_CHUNKED (ptw_openmp_body *, void *, unsigned, long, long, long, long, unsigned)
#define PTW_OPENMP_LONG long
#define PTW_OPENMP_ULL unsigned long long

#define PTW_OPENMP_FUNCTIONS(X)                                                                                      \
	X(void, GOMP_parallel, (ptw_openmp_body *, void *, unsigned, unsigned))                                      \
	X(unsigned, GOMP_parallel_reductions, (ptw_openmp_body *, void *, unsigned, unsigned))                       \
	X(void, GOMP_parallel_sections, (ptw_openmp_body *, void *, unsigned, unsigned, unsigned))                   \
	X(void, GOMP_parallel_loop_static, PTW_OPENMP_CHUNKED)                                                       \
	X(void, GOMP_parallel_loop_dynamic, PTW_OPENMP_CHUNKED)                                                      \
	X(void, GOMP_parallel_loop_guided, PTW_OPENMP_CHUNKED)                                                       \
	X(void, GOMP_parallel_loop_nonmonotonic_dynamic, PTW_OPENMP_CHUNKED)                                         \
	X(void, GOMP_parallel_loop_nonmonotonic_guided, PTW_OPENMP_CHUNKED)                                          \
	X(void, GOMP_parallel_loop_runtime, PTW_OPENMP_LOOP)                                                         \
	X(void, GOMP_parallel_loop_nonmonotonic_runtime, PTW_OPENMP_LOOP)                                            \
	X(void, GOMP_parallel_loop_maybe_nonmonotonic_runtime, PTW_OPENMP_LOOP)                                      \
	X(void, GOMP_barrier, (void))                                                                                \
	X(bool, GOMP_barrier_cancel, (void))                                                                         \
	X(void, GOMP_loop_end, (void))                                                                               \
	X(bool, GOMP_loop_end_cancel, (void))                                                                        \
	X(void, GOMP_sections_end, (void))                                                                           \
	X(bool, GOMP_sections_end_cancel, (void))                                                                    \
	X(void, GOMP_workshare_task_reduction_unregister, (bool))                                                    \
	X(void *, GOMP_single_copy_start, (void))                                                                    \
	X(void, GOMP_single_copy_end, (void *))                                                                      \
	X(bool, GOMP_cancel, (int, bool))                                                                            \
	X(void, GOMP_critical_start, (void))                                                                         \
	X(void, GOMP_critical_end, (void))                                                                           \
	X(void, GOMP_critical_name_start, (void **))                                                                 \
	X(void, GOMP_critical_name_end, (void **))                                                                   \
	X(void, GOMP_atomic_start, (void))                                                                           \
	X(void, GOMP_atomic_end, (void))                                                                             \
	X(void, GOMP_ordered_start, (void))                                                                          \
	X(void, GOMP_ordered_end, (void))                                                                            \
	X(void, GOMP_doacross_post, (long *))                                                                        \
	X(void, GOMP_doacross_ull_post, (unsigned long long *))                                                      \
	X(void, GOMP_doacross_wait, (long, ...))                                                                     \
	X(void, GOMP_doacross_ull_wait, (unsigned long long, ...))                                                   \
	X(void, GOMP_task, (ptw_openmp_body *, void *, ptw_openmp_copy *, long, long, bool, unsigned, void **, int, void *)) \
	X(void, GOMP_taskloop, (ptw_openmp_body *, void *, ptw_openmp_copy *, long, long, unsigned, unsigned long, int, long, \
				long, long))                                                                         \
	X(void, GOMP_taskloop_ull, (ptw_openmp_body *, void *, ptw_openmp_copy *, long, long, unsigned, unsigned long, int,  \
				    unsigned long long, unsigned long long, unsigned long long))                     \
	X(void, GOMP_taskwait, (void))                                                                               \
	X(void, GOMP_taskwait_depend, (void **))                                                                     \
	X(void, GOMP_taskgroup_end, (void))                                                                          \
	X(void, omp_set_lock, (void *))                                                                              \
	X(void, omp_unset_lock, (void *))                                                                            \
	X(int, omp_test_lock, (void *))                                                                              \
	X(void, omp_set_nest_lock, (void *))                                                                         \
	X(void, omp_unset_nest_lock, (void *))                                                                       \
	X(int, omp_test_nest_lock, (void *))                                                                         \
	/* Fortran's */                                                                                              \
	X(void, omp_set_lock_, (void *))                                                                             \
	X(void, omp_unset_lock_, (void *))                                                                           \
	X(int, omp_test_lock_, (void *))                                                                             \
	X(void, omp_set_nest_lock_, (void *))                                                                        \
	X(void, omp_unset_nest_lock_, (void *))                                                                      \
	X(int, omp_test_nest_lock_, (void *))                                                                        \
	/* asked only */                                                                                             \
	X(int, omp_get_thread_num, (void))                                                                           \
	X(int, omp_get_num_threads, (void))

/* LLVM's (openmp/runtime/src/kmp.h of its sources): `void *` are its ident_t, its critical sections' words, a reduction's
 * data. */
#define PTW_OPENMP_KMPC(X)                                                                                           \
	X(void, __kmpc_critical, (void *, int, void *))                                                              \
	X(void, __kmpc_critical_with_hint, (void *, int, void *, uint32_t))                                          \
	X(void, __kmpc_end_critical, (void *, int, void *))                                                          \
	X(void, __kmpc_ordered, (void *, int))                                                                       \
	X(void, __kmpc_end_ordered, (void *, int))                                                                   \
	X(void, __kmpc_doacross_post, (void *, int, const int64_t *))                                                \
	X(void, __kmpc_doacross_wait, (void *, int, const int64_t *))                                                \
	X(int, __kmpc_reduce, (void *, int, int, size_t, void *, ptw_openmp_copy *, void *))                         \
	X(int, __kmpc_reduce_nowait, (void *, int, int, size_t, void *, ptw_openmp_copy *, void *))                  \
	X(void, __kmpc_end_reduce, (void *, int, void *))                                                            \
	X(void, __kmpc_end_reduce_nowait, (void *, int, void *))

#define X(result, name, parameters) result name parameters;
PTW_OPENMP_FUNCTIONS(X)
#undef X

struct ptw_openmp {
#define X(result, name, parameters) result (*name) parameters;
	PTW_OPENMP_FUNCTIONS(X)
	PTW_OPENMP_KMPC(X)
#undef X
	const struct link_map *library; /* that they are in; NULL: not known */
};

/* Bits of what GOMP_task, GOMP_taskloop and GOMP_cancel are given (libgomp's include/gomp-constants.h and parallel.c). */
enum {
	PTW_OPENMP_CANCEL_PARALLEL = 1,
	PTW_OPENMP_TASK_DEPENDS = 8,
	PTW_OPENMP_TASK_NO_GROUP = 1 << 11,
};

#endif
