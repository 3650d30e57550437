/* SPDX-License-Identifier: MIT */
/* Starts argv[1] threads that all live at once. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_barrier_t all;

static void *wait_for_all(void *unused)
{
   pthread_barrier_wait(&all);
   return unused;
}

int main(int argc, char **argv)
{
   int count = argc > 1 ? atoi(argv[1]) : 10, i;
   pthread_t *threads = calloc((size_t)count, sizeof *threads);
   pthread_attr_t small;

   pthread_attr_init(&small);
   pthread_attr_setstacksize(&small, 65536);
   pthread_barrier_init(&all, NULL, (unsigned)count + 1);
   for (i = 0; i < count; i++)
      if (pthread_create(&threads[i], &small, wait_for_all, NULL) != 0)
         return 1;
   pthread_barrier_wait(&all);
   for (i = 0; i < count; i++)
      pthread_join(threads[i], NULL);
   printf("%d threads\n", count);
   free(threads);
   return 0;
}
