// Exports the micro-kernels under test, one C function each.
#include "kernels.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
struct Flushed {
    unsigned before;
    explicit Flushed(bool on) : before(_mm_getcsr()) { if (on) _mm_setcsr(before | 0x8040); }
    ~Flushed() { _mm_setcsr(before); }
};
#else
struct Flushed {
    explicit Flushed(bool) {}
};
#endif

#define MAP(name, to, from)                                                                        \
    CANDELA_EXPORT void map_##name(to* y, const from* x, int64_t n, int flush) {                   \
        Flushed mode(flush);                                                                       \
        for (int64_t i = 0; i < n; i++) y[i] = c_##name(x[i]);                                     \
    }                                                                                              \
    CANDELA_EXPORT void map_##name##_scalar(to* y, const from* x, int64_t n, int flush) {          \
        Flushed mode(flush);                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                          \
            asm volatile("" ::: "memory"); /* an iteration ends here: no vector holds two */       \
            y[i] = c_##name(x[i]);                                                                 \
        }                                                                                          \
    }

MAP(exp2f, float, float)
MAP(log2f, float, float)
MAP(sinf, float, float)
MAP(f32_to_bf16, uint16_t, float)
MAP(bf16_to_f32, float, uint16_t)
MAP(f32_to_f16, uint16_t, float)
MAP(f16_to_f32, float, uint16_t)

#define DOT(name, weight)                                                                                     \
    CANDELA_EXPORT void call_##name(float* C, int64_t ldc, int M, int N, const float* A, int64_t lda,         \
                                    const weight* B, int64_t ldb, int K, int accumulate) {                    \
        name(C, ldc, M, N, A, lda, B, ldb, K, accumulate);                                                    \
    }

DOT(dot_f32, float)
DOT(dot_bf16, uint16_t)
DOT(dot_f32_nt, float)
DOT(dot_bf16_nt, uint16_t)

// B [K, N] as its caller holds it, read as runs of 16 columns that start wherever they lie.
#define RUNS(name, weight)                                                                                    \
    CANDELA_EXPORT void call_##name(float* C, int64_t ldc, int M, int N, const float* A, int64_t lda,         \
                                    const weight* B, int64_t ldb, int K, int accumulate) {                    \
        const weight* runs[64];                                                                               \
        for (int n = 0; n < N; n += 16) runs[n / 16] = B + n;                                                 \
        dot_runs<16>(C, ldc, M, N, A, lda, runs, ldb, K, accumulate);                                         \
    }
RUNS(dot_runs_f32, float)
RUNS(dot_runs_bf16, uint16_t)

#define PACKED(name, row, weight)                                                                             \
    CANDELA_EXPORT void call_##name(float* C, int64_t ldc, int M, const row* A, int64_t lda,                  \
                                    const weight* panel, int K, int accumulate, const weight* next) {         \
        name(C, ldc, M, A, lda, panel, K, accumulate, next);                                                  \
    }

PACKED(dot_packed_bf16, float, uint16_t)
PACKED(dot_packed_f32, float, float)
#if defined(CANDELA_PACKED_AMX_H)
PACKED(dot_packed_bf16_amx, uint16_t, uint16_t)
#endif

// The numeric contracts, spelled out one element at a time. B is [K][N] in the first, [N][K] in the second.

CANDELA_EXPORT void reference_chain(float* C, int M, int N, const float* A, const float* B, int K, int accumulate) {
    for (int m = 0; m < M; m++) {
        for (int n = 0; n < N; n++) {
            float sum = accumulate ? C[m * N + n] : 0.0f;
            for (int k = 0; k < K; k++) sum = c_fmaf(A[m * K + k], B[k * N + n], sum);
            C[m * N + n] = sum;
        }
    }
}

CANDELA_EXPORT void reference_lanes(float* C, int M, int N, const float* A, const float* B, int K, int accumulate) {
    for (int m = 0; m < M; m++) {
        for (int n = 0; n < N; n++) {
            float lane[16] = {};
            for (int k = 0; k < K; k++) lane[k % 16] = c_fmaf(A[m * K + k], B[n * K + k], lane[k % 16]);
            for (int w = 8; w > 0; w /= 2)
                for (int l = 0; l < w; l++) lane[l] = lane[l] + lane[l + w];
            C[m * N + n] = accumulate ? C[m * N + n] + lane[0] : lane[0];
        }
    }
}
