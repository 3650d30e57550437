/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of Valgrind's CPUID (-Wl,--wrap=…): hides what is slow or missing under it, so that programs which
 * ask choose code that runs well. FMA goes through slow helpers (libm is 3.5 times faster without). ERMS and FSRM
 * make libc use `rep movs`, which runs an element at a time. AVX-512 and SHA are not implemented at all.
 */
#include "vg_core.h"
#include "libvex_guest_amd64.h"

extern void __real_amd64g_dirtyhelper_CPUID_avx2(VexGuestAMD64State *state, ULong f16c, ULong rdrand, ULong rdseed);
extern void __wrap_amd64g_dirtyhelper_CPUID_avx2(VexGuestAMD64State *state, ULong f16c, ULong rdrand, ULong rdseed);

enum {
   LEAF_FEATURES = 1, LEAF_EXTENDED_FEATURES = 7,
   ECX_FMA = 1u << 12,
   EBX_ERMS = 1u << 9,
   EBX_AVX512 = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30,
   EBX_SHA = 1u << 29,
   EDX_FSRM = 1u << 4,
};

#define EBX_AVX512_VL (1u << 31)

void __wrap_amd64g_dirtyhelper_CPUID_avx2(VexGuestAMD64State *state, ULong f16c, ULong rdrand, ULong rdseed)
{
   UInt leaf = (UInt)state->guest_RAX, subleaf = (UInt)state->guest_RCX;

   __real_amd64g_dirtyhelper_CPUID_avx2(state, f16c, rdrand, rdseed);
   if (leaf == LEAF_FEATURES)
      state->guest_RCX &= ~(ULong)ECX_FMA;
   if (leaf == LEAF_EXTENDED_FEATURES && subleaf == 0) {
      state->guest_RBX &= ~(ULong)(EBX_ERMS | EBX_AVX512 | EBX_AVX512_VL | EBX_SHA);
      state->guest_RDX &= ~(ULong)EDX_FSRM;
   }
}
