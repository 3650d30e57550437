/* SPDX-License-Identifier: MIT */
/* The library of library_globals.c. */
int library_global = 30;
int library_zero[10000];
static __thread int local = 50;

int *library_local(void) { return &local; }
