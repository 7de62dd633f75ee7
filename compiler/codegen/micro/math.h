// Scalar mathematics that vectorises: branch-free, so that a plain loop over these functions becomes vector code
// whose results equal the scalar ones bit for bit. No libm call, no table, no -ffast-math.
//
// Worst error over every float of the domain, with and without FMA: c_exp2f 1.3 ulp, c_log2f 2.0 ulp, c_sinf 2.3 ulp for
// |x| <= 1e7 (tests/backend/codegen/test_math.py samples them). Under FTZ/DAZ, as in kernel threads, denormal inputs and
// results are zero.
#ifndef CANDELA_MATH_H
#define CANDELA_MATH_H

#include <stdint.h>
#include <string.h>

static inline uint32_t c_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float c_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

// a * b + c, rounded once where the level has FMA, twice where it has not (the portable x86 level). Within a level
// it is always the same.
static inline float c_fmaf(float a, float b, float c) {
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

// 2^x. Exact at integers; 0 at -inf and below -150; inf from 128 on; NaN stays NaN.
static inline float c_exp2f(float x) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, held in the low bits
    float t = x < -151.0f ? -151.0f : x;
    t = t > 129.0f ? 129.0f : t;
    const float shifted = t + magic;
    const float f = t - (shifted - magic);  // in [-0.5, 0.5]
    const int32_t i = (int32_t)(c_bits(shifted) - c_bits(magic));
    float p = 0.000153533621f;
    p = c_fmaf(p, f, 0.00133988746f);
    p = c_fmaf(p, f, 0.00961843736f);
    p = c_fmaf(p, f, 0.0555033247f);
    p = c_fmaf(p, f, 0.240226479f);
    p = c_fmaf(p, f, 0.693147203f);
    p = c_fmaf(p, f, 1.0f);
    const int32_t half = i >> 1;  // two factors: 2^i itself may leave the range of normal floats
    return p * c_float((uint32_t)(half + 127) << 23) * c_float((uint32_t)(i - half + 127) << 23);
}

// log2(x). -inf at 0, exactly 0 at 1, NaN below 0, inf at inf; NaN stays NaN.
static inline float c_log2f(float x) {
    const bool tiny = x < 1.17549435e-38f;
    const uint32_t u = c_bits(tiny ? x * 8388608.0f : x) - 0x3f3504f3u;  // mantissa from sqrt(1/2) to sqrt(2)
    const int32_t e = (int32_t)u >> 23;
    const float f = c_float((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float p = -0.109960185f;
    p = c_fmaf(p, f, 0.186172576f);
    p = c_fmaf(p, f, -0.19105591f);
    p = c_fmaf(p, f, 0.20460032f);
    p = c_fmaf(p, f, -0.23961839f);
    p = c_fmaf(p, f, 0.288567495f);
    p = c_fmaf(p, f, -0.360696599f);
    p = c_fmaf(p, f, 0.480898237f);
    p = c_fmaf(p, f, -0.721347352f);
    const float low = c_fmaf(f, 1.92596299e-8f, f * f * p);  // log2(e) in two pieces
    const float y = c_fmaf(f, 1.44269502f, low) + (float)(tiny ? e - 23 : e);
    const float inf = __builtin_inff();
    const float finite = x == inf ? inf : y;
    const float other = x == 0.0f ? -inf : __builtin_nanf("");
    return x > 0.0f ? finite : other;
}

// sin(x): x - n*pi by Cody and Waite in double, then an odd polynomial. Inaccurate, but within [-1, 1], far beyond
// 1e5; NaN at infinities.
static inline float c_sinf(float x) {
    const double magic = 6755399441055744.0;  // 1.5 * 2^52
    const double shifted = (double)x * 0.3183098861837907 + magic;
    const double n = shifted - magic;
    float r = (float)(((double)x - n * 3.141592651605606) - n * 1.984187159361081e-09);
    r = r < -1.5707964f ? -1.5707964f : r;
    r = r > 1.5707964f ? 1.5707964f : r;
    uint64_t parity;
    memcpy(&parity, &shifted, sizeof parity);
    const float z = r * r;
    float p = -2.38865865e-08f;
    p = c_fmaf(p, z, 2.75252555e-06f);
    p = c_fmaf(p, z, -0.000198408658f);
    p = c_fmaf(p, z, 0.00833333109f);
    p = c_fmaf(p, z, -0.166666666f);
    const float y = r == 0.0f ? r : c_fmaf(r * z, p, r);  // keeps -0
    return c_float(c_bits(y) ^ ((uint32_t)parity << 31));
}

static inline float c_bf16_to_f32(uint16_t h) { return c_float((uint32_t)h << 16); }

// Nearest, ties to even; a NaN becomes a quiet NaN, infinities stay.
static inline uint16_t c_f32_to_bf16(float x) {
    const uint32_t u = c_bits(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const uint32_t quiet = (u >> 16) | 0x0040u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// Exact, denormal halves included.
static inline float c_f16_to_f32(uint16_t h) {
    const uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    const uint32_t exponent = magnitude & 0x0f800000u;
    const uint32_t normal = magnitude + 0x38000000u;                             // rebias by 127 - 15
    const uint32_t special = magnitude + 0x70000000u;                            // inf and NaN
    const uint32_t small = c_bits(c_float(normal + 0x00800000u) - 6.10351562e-05f);  // renormalise by subtraction
    const uint32_t finite = exponent == 0u ? small : normal;
    const uint32_t bits = exponent == 0x0f800000u ? special : finite;
    return c_float(bits | ((uint32_t)(h & 0x8000u) << 16));
}

// Nearest, ties to even; overflow becomes inf, a NaN a quiet NaN.
static inline uint16_t c_f32_to_f16(float x) {
    const uint32_t u = c_bits(x);
    const uint32_t magnitude = u & 0x7fffffffu;
    const uint32_t normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t small = c_bits(c_float(magnitude) + 0.5f) - 0x3f000000u;  // the adder rounds the denormal half
    const uint32_t finite = magnitude < 0x38800000u ? small : normal;
    const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32_t half = magnitude >= 0x47800000u ? special : finite;
    return (uint16_t)(half | ((u >> 16) & 0x8000u));
}

#endif
