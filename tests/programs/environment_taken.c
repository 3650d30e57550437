/* SPDX-License-Identifier: MIT */
/* Loads libraries, one with each argument, each after another thread wrote to where the environment and the name of
   the library before are: in the program's heap. Prints what each library says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

extern char **environ;

static void *take(void *before)
{
   struct link_map *map = before;

   *(char *volatile *)environ = *environ;
   if (map)
      *(volatile char *)map->l_name = *map->l_name;
   return NULL;
}

int main(int argc, char **argv)
{
   void *library = NULL;

   setenv("MOVED", "to the heap", 1);
   for (int i = 1; i < argc; i++) {
      pthread_t thread;
      int (*bump)(void);

      if (pthread_create(&thread, NULL, take, library) || pthread_join(thread, NULL))
         return 2;
      library = dlopen(argv[i], RTLD_NOW);
      bump = library ? (int (*)(void))dlsym(library, "bump") : NULL;
      if (!bump)
         return 3;
      printf("%d ", bump());
   }
   printf("%s\n", getenv("MOVED"));
   return 0;
}
