// C = A * B, or C += A * B, with B row-major. Needs a vector layer (kernels.h chooses it).
//
// Numeric contract: an element of C is one chain of fused multiply-adds over k = 0 .. K-1, begun at 0 or at C. It
// depends on its row of A and its column of B only, whatever M, N, the register block and the thread.
#ifndef CANDELA_DOT_H
#define CANDELA_DOT_H

#include "blocks.h"

namespace micro {

// R rows by V vectors of columns, held in registers over all of K; with TAIL the last vector is masked.
template <int R, int V, bool TAIL, class E>
MICRO_BLOCK void dot_block(float* C, int64_t ldc, const float* A, int64_t lda, const E* B, int64_t ldb, int K,
                           bool accumulate, Mask tail) {
    const auto masked = [](int v) { return TAIL && v == V - 1; };
    vf acc[R][V];
    MICRO_UNROLL for (int r = 0; r < R; r++) {
        MICRO_UNROLL for (int v = 0; v < V; v++) {
            const float* c = C + r * ldc + v * W;
            acc[r][v] = !accumulate ? vzero() : masked(v) ? vload(c, tail) : vload(c);
        }
    }
    for (int64_t k = 0; k < K; k++) {
        vf b[V];
        MICRO_UNROLL for (int v = 0; v < V; v++) {
            const E* p = B + k * ldb + v * W;
            b[v] = masked(v) ? vload(p, tail) : vload(p);
        }
        MICRO_UNROLL for (int r = 0; r < R; r++) {
            const vf a = vset1(A[r * lda + k]);
            MICRO_UNROLL for (int v = 0; v < V; v++) acc[r][v] = vfma(a, b[v], acc[r][v]);
        }
    }
    MICRO_UNROLL for (int r = 0; r < R; r++) {
        MICRO_UNROLL for (int v = 0; v < V; v++) {
            float* c = C + r * ldc + v * W;
            if (masked(v)) {
                vstore(c, acc[r][v], tail);
            } else {
                vstore(c, acc[r][v]);
            }
        }
    }
}

template <class E>
static inline void dot_rows_by_columns(float* C, int64_t ldc, int M, int N, const float* A, int64_t lda, const E* B,
                                       int64_t ldb, int K, bool accumulate) {
    for_row_blocks<MR>(M, [&](auto rows, int m) {
        constexpr int R = decltype(rows)::value;
        float* c = C + m * ldc;
        const float* a = A + m * lda;
        int n = 0;
        for (; n + NV * W <= N; n += NV * W)
            dot_block<R, NV, false>(c + n, ldc, a, lda, B + n, ldb, K, accumulate, mask_first(W));
        if constexpr (NV > 2) {
            for (; n + 2 * W <= N; n += 2 * W)
                dot_block<R, 2, false>(c + n, ldc, a, lda, B + n, ldb, K, accumulate, mask_first(W));
        }
        for (; n < N; n += W)
            dot_block<R, 1, true>(c + n, ldc, a, lda, B + n, ldb, K, accumulate, mask_first(N - n));
    });
}

}  // namespace micro

// C [M, N] from A [M, K] and B [K, N] in float32.
template <class = void>
static inline void dot_f32(float* C, int64_t ldc, int M, int N, const float* A, int64_t lda, const float* B,
                           int64_t ldb, int K, bool accumulate) {
    micro::dot_rows_by_columns(C, ldc, M, N, A, lda, B, ldb, K, accumulate);
}

// The same with B in bfloat16, widened exactly.
template <class = void>
static inline void dot_bf16(float* C, int64_t ldc, int M, int N, const float* A, int64_t lda, const uint16_t* B,
                            int64_t ldb, int K, bool accumulate) {
    micro::dot_rows_by_columns(C, ldc, M, N, A, lda, B, ldb, K, accumulate);
}

#endif
