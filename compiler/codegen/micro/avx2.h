// The vector layer of AVX2 with FMA: eight floats; tails go through masks or a small copy.
#ifndef CANDELA_AVX2_H
#define CANDELA_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace micro {

using vf = __m256;
using Mask = __m256i;
constexpr int W = 8;
constexpr int MR = 6, NV = 2;
constexpr int NT_MAX_ROWS = 2;
constexpr int NT_OUTPUTS = 4;

static inline Mask mask_first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline int mask_count(Mask m) { return __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m))); }
static inline vf vzero() { return _mm256_setzero_ps(); }
static inline vf vset1(float x) { return _mm256_set1_ps(x); }
static inline vf vfma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vload(const float* p) { return _mm256_loadu_ps(p); }
static inline vf vload(const float* p, Mask m) { return _mm256_maskload_ps(p, m); }
static inline void vstore(float* p, vf v) { _mm256_storeu_ps(p, v); }
static inline void vstore(float* p, vf v, Mask m) { _mm256_maskstore_ps(p, m, v); }

static inline vf widen(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
static inline vf vload(const uint16_t* p) { return widen(_mm_loadu_si128((const __m128i*)p)); }
static inline vf vload(const uint16_t* p, Mask m) {
    alignas(16) uint16_t tail[W] = {};
    memcpy(tail, p, sizeof(uint16_t) * (size_t)mask_count(m));
    return widen(_mm_load_si128((const __m128i*)tail));
}

static inline vf vpair_first(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i*)p), 16));
}
static inline vf vpair_second(const uint16_t* p) {
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i*)p), high));
}

// Each accumulator is two vectors: sixteen partial sums, added by the tree of dot_nt.h.
static inline float reduce16(const vf* s) {
    const vf eight = _mm256_add_ps(s[0], s[1]);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline void reduce_outputs(float* out, const vf* s) {
    for (int i = 0; i < NT_OUTPUTS; i++) out[i] = reduce16(s + 2 * i);
}

}  // namespace micro

#endif
