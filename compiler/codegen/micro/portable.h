// The vector layer of every other CPU: four floats in GCC's vector extension (SSE2 on x86-64, NEON on AArch64).
#ifndef CANDELA_PORTABLE_H
#define CANDELA_PORTABLE_H

#include <stdint.h>
#include <string.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace micro {

typedef float vf __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
struct Mask {
    int n;  // this many leading lanes
};
constexpr int W = 4;
constexpr int MR = 4, NV = 2;
constexpr int NT_MAX_ROWS = 1;
constexpr int NT_OUTPUTS = 2;

static inline Mask mask_first(int n) { return Mask{n < 0 ? 0 : n > W ? W : n}; }
static inline vf vzero() { return vf{0.0f, 0.0f, 0.0f, 0.0f}; }
static inline vf vset1(float x) { return vf{x, x, x, x}; }
static inline vf vfma(vf a, vf b, vf c) {
#if defined(__aarch64__)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;  // two roundings, as c_fmaf has on this level
#endif
}

template <class T>
static inline T read(const void* p) {
    T v;
    memcpy(&v, p, sizeof v);
    return v;
}
template <class E>
static inline void read_first(E* to, const E* p, Mask m) {
    for (int i = 0; i < W; i++) to[i] = i < m.n ? p[i] : E(0);
}

static inline vf vload(const float* p) { return read<vf>(p); }
static inline vf vload(const float* p, Mask m) {
    float tail[W];
    read_first(tail, p, m);
    return read<vf>(tail);
}
static inline void vstore(float* p, vf v) { memcpy(p, &v, sizeof v); }
static inline void vstore(float* p, vf v, Mask m) {
    for (int i = 0; i < m.n; i++) p[i] = v[i];
}

static inline vf vload(const uint16_t* p) { return (vf)(vu{p[0], p[1], p[2], p[3]} << 16); }
static inline vf vload(const uint16_t* p, Mask m) {
    uint16_t tail[W];
    read_first(tail, p, m);
    return vload(tail);
}

static inline vf vpair_first(const uint16_t* p) { return (vf)(read<vu>(p) << 16); }
static inline vf vpair_second(const uint16_t* p) { return (vf)(read<vu>(p) & 0xffff0000u); }

// Each accumulator is four vectors: sixteen partial sums, added by the tree of dot_nt.h.
static inline float reduce16(const vf* s) {
    const vf four = (s[0] + s[2]) + (s[1] + s[3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}
static inline void reduce_outputs(float* out, const vf* s) {
    for (int i = 0; i < NT_OUTPUTS; i++) out[i] = reduce16(s + 4 * i);
}

}  // namespace micro

#endif
