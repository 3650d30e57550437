/* SPDX-License-Identifier: MIT */
/* Loads two libraries one after the other, again and again; they come to lie at the same address.
   usage: reload A.so B.so. Prints whether they did. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
   void *address[2] = { NULL, NULL };
   int sum = 0;

   for (int i = 0; argc == 3 && i < 10; i++) {
      void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
      int (*compute)(int) = library ? (int (*)(int))dlsym(library, "compute") : NULL;

      if (!compute)
         return 2;
      address[i % 2] = (void *)compute;
      sum += compute(i);
      dlclose(library);
   }
   printf("sum %d same %d\n", sum, address[0] == address[1]);
   return 0;
}
