// Kernels that time the micro-kernels and what bounds them; `python -m compiler.codegen.micro_bench` runs them.
#include "kernels.h"

enum { M, K, PANELS };

// A value that the compiler knows nothing about, so that no two chains below are one.
static inline micro::vf opaque(float value) {
    micro::vf v = micro::vset1(value);
    asm volatile("" : "+m"(v));
    return v;
}

// dims[PANELS] rounds of twelve independent multiply-add chains; their sum keeps them alive.
CANDELA_KERNEL(bench_peak) {
    using namespace micro;
    const vf x = opaque(1.0001f), y = opaque(0.5f);
    vf sum[12];
    MICRO_UNROLL for (int i = 0; i < 12; i++) sum[i] = opaque((float)i);
    for (int64_t round = 0; round < dims[PANELS]; round++) {
        MICRO_UNROLL for (int i = 0; i < 12; i++) sum[i] = vfma(x, y, sum[i]);
    }
    MICRO_UNROLL for (int i = 1; i < 12; i++) sum[0] = sum[0] + sum[i];
    vstore((float*)scratch, sum[0]);
}

// Reads every byte of the weights once.
CANDELA_KERNEL(bench_read) {
    using namespace micro;
    const int64_t floats = dims[PANELS] * dims[K] * 32, chunk = 8 * W;
    const int64_t first = c_share(floats / chunk, thread, threads), end = c_share(floats / chunk, thread + 1, threads);
    const float* p = (const float*)bufs[2];
    vf sum[8];
    MICRO_UNROLL for (int i = 0; i < 8; i++) sum[i] = vzero();
    for (int64_t at = first; at < end; at++) {
        MICRO_UNROLL for (int i = 0; i < 8; i++) sum[i] = sum[i] + vload(p + at * chunk + i * W);
    }
    MICRO_UNROLL for (int i = 1; i < 8; i++) sum[0] = sum[0] + sum[i];
    vstore((float*)scratch, sum[0]);
}

template <class E, class F>
static void over_panels(const E* weights, int64_t stride, const int64_t* dims, int thread, int threads, const F& multiply) {
    const int64_t end = c_share(dims[PANELS], thread + 1, threads);
    for (int64_t p = c_share(dims[PANELS], thread, threads); p < end; p++)
        multiply(p, weights + p * stride, p + 1 < end ? weights + (p + 1) * stride : nullptr);
}

// C [M, 64 * PANELS] from A [M, K] and the panels, each thread its own.
CANDELA_KERNEL(bench_packed_bf16) {
    const float* a = (const float*)bufs[0];
    float* c = (float*)bufs[1];
    over_panels((const uint16_t*)bufs[2], (dims[K] + 1) / 2 * 128, dims, thread, threads,
                [&](int64_t p, const uint16_t* panel, const uint16_t* next) {
                    dot_packed_bf16(c + p * 64, dims[PANELS] * 64, (int)dims[M], a, dims[K], panel, (int)dims[K], false, next);
                });
}

CANDELA_KERNEL(bench_packed_f32) {
    const float* a = (const float*)bufs[0];
    float* c = (float*)bufs[1];
    over_panels((const float*)bufs[2], dims[K] * 64, dims, thread, threads,
                [&](int64_t p, const float* panel, const float* next) {
                    dot_packed_f32(c + p * 64, dims[PANELS] * 64, (int)dims[M], a, dims[K], panel, (int)dims[K], false, next);
                });
}

#if defined(CANDELA_PACKED_AMX_H)
CANDELA_KERNEL(bench_packed_amx) {
    const uint16_t* a = (const uint16_t*)bufs[0];
    float* c = (float*)bufs[1];
    over_panels((const uint16_t*)bufs[2], (dims[K] + 31) / 32 * 2048, dims, thread, threads,
                [&](int64_t p, const uint16_t* panel, const uint16_t* next) {
                    dot_packed_bf16_amx(c + p * 64, dims[PANELS] * 64, (int)dims[M], a, dims[K], panel, (int)dims[K], false,
                                        next);
                });
}
#endif
