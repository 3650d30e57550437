/* SPDX-License-Identifier: MIT */
/* The library of libraries_of_ended_threads.c. */
int global = 70;
static __thread int number = 7;

int *counter(void) { return &number; }
