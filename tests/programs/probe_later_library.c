/* SPDX-License-Identifier: MIT */
/* What probe_later loads. */
long calls;

__attribute__((noinline)) long struck(long who, long index)
{
	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	return who * 1000 + index % 7;
}
