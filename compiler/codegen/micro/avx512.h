// The vector layer of AVX-512 (F, BW, DQ, VL): sixteen floats, masked tails, sums of sixteen accumulators at once.
#ifndef CANDELA_AVX512_H
#define CANDELA_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "blocks.h"

namespace micro {

using vf = __m512;
using Mask = __mmask16;
constexpr int W = 16;             // floats in a vector
constexpr int MR = 6, NV = 4;     // rows and vectors of columns in a register block: 24 accumulators of 32 registers
constexpr int NT_MAX_ROWS = 4;    // rows of A in a block of the row-by-row kernels
constexpr int NT_OUTPUTS = 16;    // outputs of such a block

static inline Mask mask_first(int n) { return (Mask)(n >= W ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u); }
static inline vf vzero() { return _mm512_setzero_ps(); }
static inline vf vset1(float x) { return _mm512_set1_ps(x); }
static inline vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vload(const float* p) { return _mm512_loadu_ps(p); }
static inline vf vload(const float* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
static inline void vstore(float* p, vf v) { _mm512_storeu_ps(p, v); }
static inline void vstore(float* p, vf v, Mask m) { _mm512_mask_storeu_ps(p, m, v); }

static inline vf widen(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
static inline vf vload(const uint16_t* p) { return widen(_mm256_loadu_si256((const __m256i*)p)); }
static inline vf vload(const uint16_t* p, Mask m) { return widen(_mm256_maskz_loadu_epi16(m, p)); }

// Sixteen pairs of bf16 at p: the first, or the second, of each pair.
static inline vf vpair_first(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
static inline vf vpair_second(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000u)));
}

// Each halving adds one half of every sum in x and y to its other half, so that sixteen sums cost fifteen additions:
// `kept` holds the first half of x's sums beside the second half of y's, `crossed` the opposite.
static inline vf halve_to_8(vf x, vf y) {
    const vf kept = _mm512_mask_blend_ps(0xff00, x, y), crossed = _mm512_shuffle_f32x4(x, y, 0x4e);
    return _mm512_add_ps(kept, crossed);
}
static inline vf halve_to_4(vf x, vf y) {
    const __m512i order = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    const vf kept = _mm512_mask_blend_ps(0xf0f0, x, y), crossed = _mm512_permutex2var_ps(x, order, y);
    return _mm512_add_ps(kept, crossed);
}
static inline vf halve_to_2(vf x, vf y) {
    const vf kept = _mm512_mask_blend_ps(0xcccc, x, y), crossed = _mm512_shuffle_ps(x, y, 0x4e);
    return _mm512_add_ps(kept, crossed);
}
static inline vf halve_to_1(vf x, vf y) {
    const __m512i order = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
    const vf kept = _mm512_mask_blend_ps(0xaaaa, x, y), crossed = _mm512_permutex2var_ps(x, order, y);
    return _mm512_add_ps(kept, crossed);
}

// out[i] is the sum of s[i] by the tree of dot_nt.h: lanes l and l + 8, then l + 4, l + 2, l + 1.
static inline void reduce_outputs(float* out, const vf* s) {
    vf four[4], two[2];
    MICRO_UNROLL for (int i = 0; i < 4; i++)
        four[i] = halve_to_4(halve_to_8(s[4 * i], s[4 * i + 1]), halve_to_8(s[4 * i + 2], s[4 * i + 3]));
    MICRO_UNROLL for (int i = 0; i < 2; i++) two[i] = halve_to_2(four[2 * i], four[2 * i + 1]);
    const __m512i order = _mm512_setr_epi32(0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15);
    _mm512_store_ps(out, _mm512_permutexvar_ps(order, halve_to_1(two[0], two[1])));
}

}  // namespace micro

#endif
