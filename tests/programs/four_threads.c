/* SPDX-License-Identifier: MIT */
/* Four threads that compute, sort through a callback, and share a lock. usage: four_threads [ROUNDS] */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static long rounds = 2000;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;

static int compare(const void *a, const void *b)
{
   return *(const int *)a - *(const int *)b;
}

static void *worker(void *number)
{
   uint32_t seed = (uint32_t)(uintptr_t)number * 7919 + 1;
   long sum = 0, round;
   int values[256];

   for (round = 0; round < rounds; round++) {
      for (int i = 0; i < 256; i++) {
         seed = seed * 1664525 + 1013904223;
         values[i] = (int)(seed >> 8);
         sum = seed & 0x100 ? sum + i : sum ^ seed;
      }
      qsort(values, 256, sizeof *values, compare);
      sum += values[100];
      if (round % 64 == 0) {
         pthread_mutex_lock(&lock);
         total += sum;
         pthread_mutex_unlock(&lock);
      }
   }
   return NULL;
}

int main(int argc, char **argv)
{
   pthread_t threads[4];

   if (argc > 1)
      rounds = atol(argv[1]);
   for (long i = 0; i < 4; i++)
      pthread_create(&threads[i], NULL, worker, (void *)i);
   for (int i = 0; i < 4; i++)
      pthread_join(threads[i], NULL);
   printf("total %ld\n", total);
   return 0;
}
