/* SPDX-License-Identifier: MIT */
/* A library whose code depends on KIND, at the same place. */
int compute(int x);

int compute(int x)
{
   int sum = 0;

   for (int i = 0; i < x; i++)
#if KIND == 1
      sum += i % 3 ? i : 2;
#else
      sum -= i & 1 ? x : i;
#endif
   return sum;
}
