// All that generated source includes: the ABI, the mathematics, and the micro-kernels of the level being compiled. The
// level follows from the compiler's own macros, so a translation unit cannot disagree with its flags.
#ifndef CANDELA_KERNELS_H
#define CANDELA_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "abi.h"
#include "math.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "avx2.h"
#else
#include "portable.h"
#endif

#include "dot.h"
#include "dot_nt.h"
#include "dot_runs.h"
#include "packed.h"

#if defined(CANDELA_AMX_EMULATED)
#include "amx_emulated.h"
#include "packed_amx.h"
#elif defined(__AMX_BF16__)
#include "amx.h"
#include "packed_amx.h"
#endif

#endif
