// C = A * B^T, or C += A * B^T, with B [N, K] row-major: each element is the product of two rows. Needs a vector layer.
//
// Numeric contract: lane l of sixteen sums k = l, l + 16, l + 32, ... by fused multiply-adds from 0 (a missing k adds
// 0 * 0); the lanes are added as l and l + 8, then l + 4, l + 2, l + 1; the result is stored, or added to C once. An
// element depends on its two rows only.
#ifndef CANDELA_DOT_NT_H
#define CANDELA_DOT_NT_H

#include <string.h>

#include "blocks.h"

namespace micro {

constexpr int LANES = 16;
constexpr int PARTS = LANES / W;

static inline void store_outputs(float* c, const float* out, int count, bool accumulate) {
    if (accumulate) {
        for (int s = 0; s < count; s++) c[s] += out[s];
    } else {
        memcpy(c, out, sizeof(float) * (size_t)count);
    }
}

// R rows of A by NT_OUTPUTS / R rows of B; rows past `rows` and `columns` repeat the last one and are not stored.
template <int R, class E>
MICRO_BLOCK void dot_nt_block(float* C, int64_t ldc, int rows, int columns, const float* A, int64_t lda, const E* B,
                              int64_t ldb, int K, bool accumulate) {
    constexpr int S = NT_OUTPUTS / R;
    const float* a_row[R];
    const E* b_row[S];
    MICRO_UNROLL for (int r = 0; r < R; r++) a_row[r] = A + (r < rows ? r : rows - 1) * lda;
    MICRO_UNROLL for (int s = 0; s < S; s++) b_row[s] = B + (s < columns ? s : columns - 1) * ldb;
    vf acc[NT_OUTPUTS * PARTS];
    MICRO_UNROLL for (int i = 0; i < NT_OUTPUTS * PARTS; i++) acc[i] = vzero();

    const auto add = [&](int64_t k, auto load_a, auto load_b) {
        MICRO_UNROLL for (int p = 0; p < PARTS; p++) {
            vf b[S];
            MICRO_UNROLL for (int s = 0; s < S; s++) b[s] = load_b(b_row[s] + k + p * W, p);
            MICRO_UNROLL for (int r = 0; r < R; r++) {
                const vf a = load_a(a_row[r] + k + p * W, p);
                MICRO_UNROLL for (int s = 0; s < S; s++) {
                    vf& sum = acc[(r * S + s) * PARTS + p];
                    sum = vfma(a, b[s], sum);
                }
            }
        }
    };
    int64_t k = 0;
    for (; k + LANES <= K; k += LANES)
        add(k, [](const float* p, int) { return vload(p); }, [](const E* p, int) { return vload(p); });
    if (k < K) {
        const int left = (int)(K - k);
        const auto masked = [left](const auto* p, int part) { return vload(p, mask_first(left - part * W)); };
        add(k, masked, masked);
    }

    alignas(64) float out[NT_OUTPUTS];
    reduce_outputs(out, acc);
    const int stored_rows = rows < R ? rows : R;
    for (int r = 0; r < stored_rows; r++) {
        if (columns >= S) {  // a constant count becomes vector code
            store_outputs(C + r * ldc, out + r * S, S, accumulate);
        } else {
            store_outputs(C + r * ldc, out + r * S, columns, accumulate);
        }
    }
}

template <int R, class E>
static inline void dot_nt_rows(float* C, int64_t ldc, int rows, int N, const float* A, int64_t lda, const E* B,
                               int64_t ldb, int K, bool accumulate) {
    constexpr int S = NT_OUTPUTS / R;
    for (int n = 0; n < N; n += S)
        dot_nt_block<R>(C + n, ldc, rows, N - n, A, lda, B + n * ldb, ldb, K, accumulate);
}

template <class E>
static inline void dot_rows_by_rows(float* C, int64_t ldc, int M, int N, const float* A, int64_t lda, const E* B,
                                    int64_t ldb, int K, bool accumulate) {
    int m = 0;
    if constexpr (NT_MAX_ROWS >= 4) {
        for (; M - m >= 3; m += 4)
            dot_nt_rows<4>(C + m * ldc, ldc, M - m, N, A + m * lda, lda, B, ldb, K, accumulate);
    }
    if constexpr (NT_MAX_ROWS >= 2) {
        for (; M - m >= 2; m += 2)
            dot_nt_rows<2>(C + m * ldc, ldc, M - m, N, A + m * lda, lda, B, ldb, K, accumulate);
    }
    for (; m < M; m++) dot_nt_rows<1>(C + m * ldc, ldc, 1, N, A + m * lda, lda, B, ldb, K, accumulate);
}

}  // namespace micro

// C [M, N] from A [M, K] and B [N, K] in float32.
template <class = void>
static inline void dot_f32_nt(float* C, int64_t ldc, int M, int N, const float* A, int64_t lda, const float* B,
                              int64_t ldb, int K, bool accumulate) {
    micro::dot_rows_by_rows(C, ldc, M, N, A, lda, B, ldb, K, accumulate);
}

// The same with B in bfloat16, widened exactly.
template <class = void>
static inline void dot_bf16_nt(float* C, int64_t ldc, int M, int N, const float* A, int64_t lda, const uint16_t* B,
                               int64_t ldb, int K, bool accumulate) {
    micro::dot_rows_by_rows(C, ldc, M, N, A, lda, B, ldb, K, accumulate);
}

#endif
