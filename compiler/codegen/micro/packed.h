// C = A * panel, or C += A * panel, where a panel holds 64 packed columns of the weights. Needs a vector layer.
// `compiler/codegen/layout.py` packs: bf16 panels are [ceil(K / 2)][64][2] (pairs of k side by side, an odd K padded
// with 0), float32 panels [K][64]; panels of one matrix lie one after the other, so that M = 1 streams memory in order.
//
// Numeric contract as in dot.h: one chain of fused multiply-adds over k = 0 .. K-1 for each element; A is never read
// at K or beyond, and the padding is never multiplied.
#ifndef CANDELA_PACKED_H
#define CANDELA_PACKED_H

#include "blocks.h"

constexpr int PANEL = 64;

namespace micro {

// Vectors of columns beside R rows: as many as the accumulators of an MR x NV block allow, a power of two.
constexpr int vectors_for(int rows) {
    int v = PANEL / W;
    while (rows * v > MR * NV) v /= 2;
    return v;
}

template <int V, bool SECOND, class E>
static inline void load_columns(vf* b, const E* p) {
    MICRO_UNROLL for (int v = 0; v < V; v++) {
        if constexpr (sizeof(E) == 4) {
            b[v] = vload(p + v * W);
        } else if constexpr (SECOND) {
            b[v] = vpair_second(p + v * W * 2);
        } else {
            b[v] = vpair_first(p + v * W * 2);
        }
    }
}

// A step of the walk over a panel: two k of bf16, one k of float32; 256 bytes in both.
template <class E>
constexpr int step_k() {
    return sizeof(E) == 4 ? 1 : 2;
}

// R rows by 64 columns, V vectors of columns at a time. Each step asks for LINES cache lines from `ahead` on.
template <int R, int LINES, class E>
MICRO_BLOCK void packed_block(float* C, int64_t ldc, const float* A, int64_t lda, const E* panel, int K,
                              bool accumulate, const char* ahead) {
    constexpr int V = vectors_for(R);
    constexpr int STEP = step_k<E>();
    constexpr int64_t ROW = PANEL * STEP;
    constexpr int GROUP_LINES = LINES * V * W / PANEL;  // what each of the groups of columns asks for
    for (int n = 0; n < PANEL; n += V * W) {
        vf acc[R][V], b[V];
        MICRO_UNROLL for (int r = 0; r < R; r++) {
            MICRO_UNROLL for (int v = 0; v < V; v++)
                acc[r][v] = accumulate ? vload(C + r * ldc + n + v * W) : vzero();
        }
        const auto multiply = [&](const float* a) {
            MICRO_UNROLL for (int r = 0; r < R; r++) {
                const vf x = vset1(a[r * lda]);
                MICRO_UNROLL for (int v = 0; v < V; v++) acc[r][v] = vfma(x, b[v], acc[r][v]);
            }
        };
        const E* p = panel + n * STEP;
        int64_t k = 0;
        for (; k + STEP <= K; k += STEP, p += ROW) {
            MICRO_UNROLL for (int i = 0; i < GROUP_LINES; i++) __builtin_prefetch(ahead + i * 64, 0, 2);
            if constexpr (LINES > 0) ahead += GROUP_LINES * 64;
            load_columns<V, false>(b, p);
            multiply(A + k);
            if constexpr (STEP == 2) {
                load_columns<V, true>(b, p);
                multiply(A + k + 1);
            }
        }
        if (k < K) {  // the last k of an odd K
            load_columns<V, false>(b, p);
            multiply(A + k);
        }
        MICRO_UNROLL for (int r = 0; r < R; r++) {
            MICRO_UNROLL for (int v = 0; v < V; v++) vstore(C + r * ldc + n + v * W, acc[r][v]);
        }
    }
}

// A single pass over the panel asks for memory a fixed distance ahead. With more rows the first two passes ask for half of
// `next` each, so that memory is read while every pass computes.
template <class E>
static inline void dot_panel(float* C, int64_t ldc, int M, const float* A, int64_t lda, const E* panel, int K,
                             bool accumulate, const E* next) {
    const int64_t half = (K / step_k<E>()) * 128;
    for_row_blocks<MR>(M, [&](auto rows, int m) {
        constexpr int R = decltype(rows)::value;
        float* c = C + m * ldc;
        const float* a = A + m * lda;
        if (M <= MR || (next == nullptr && m == 0)) {
            packed_block<R, 4>(c, ldc, a, lda, panel, K, accumulate, (const char*)panel + CANDELA_PREFETCH_BYTES);
        } else if (next != nullptr && m <= MR) {
            packed_block<R, 2>(c, ldc, a, lda, panel, K, accumulate, (const char*)next + (m == 0 ? 0 : half));
        } else {
            packed_block<R, 0>(c, ldc, a, lda, panel, K, accumulate, nullptr);
        }
    });
}

}  // namespace micro

// C [M, 64] from A [M, K] in float32 and one bf16 panel. `next` is the panel that this thread multiplies after this one, if
// there is one: with more than MR rows it is fetched meanwhile.
template <class = void>
static inline void dot_packed_bf16(float* C, int64_t ldc, int M, const float* A, int64_t lda, const uint16_t* panel,
                                   int K, bool accumulate, const uint16_t* next = nullptr) {
    micro::dot_panel(C, ldc, M, A, lda, panel, K, accumulate, next);
}

// C [M, 64] from A [M, K] and one panel, both in float32.
template <class = void>
static inline void dot_packed_f32(float* C, int64_t ldc, int M, const float* A, int64_t lda, const float* panel, int K,
                                  bool accumulate, const float* next = nullptr) {
    micro::dot_panel(C, ldc, M, A, lda, panel, K, accumulate, next);
}

#endif
