// C = A * B, or C += A * B, where the columns of B lie in runs with an address each, as keys in the blocks of a paged
// cache do. Needs a vector layer.
//
// Numeric contract as in dot.h. Runs are multiplied side by side, so that a few rows of A keep enough chains in flight.
#ifndef CANDELA_DOT_RUNS_H
#define CANDELA_DOT_RUNS_H

#include "blocks.h"
#include "dot.h"

namespace micro {

// R rows by V vectors of columns; vector v of row k is at column[v] + k * ldb.
template <int R, int V, class E>
MICRO_BLOCK void runs_block(float* C, int64_t ldc, const float* A, int64_t lda, const E* const* column, int64_t ldb,
                            int K, bool accumulate) {
    vf acc[R][V];
    MICRO_UNROLL for (int r = 0; r < R; r++) {
        MICRO_UNROLL for (int v = 0; v < V; v++) acc[r][v] = accumulate ? vload(C + r * ldc + v * W) : vzero();
    }
    for (int64_t k = 0; k < K; k++) {
        vf b[V];
        MICRO_UNROLL for (int v = 0; v < V; v++) b[v] = vload(column[v] + k * ldb);
        MICRO_UNROLL for (int r = 0; r < R; r++) {
            const vf a = vset1(A[r * lda + k]);
            MICRO_UNROLL for (int v = 0; v < V; v++) acc[r][v] = vfma(a, b[v], acc[r][v]);
        }
    }
    MICRO_UNROLL for (int r = 0; r < R; r++) {
        MICRO_UNROLL for (int v = 0; v < V; v++) vstore(C + r * ldc + v * W, acc[r][v]);
    }
}

}  // namespace micro

// C [M, N] from A [M, K] and N columns in runs of GRAIN: column n of row k is at runs[n / GRAIN][k * ldb + n % GRAIN].
template <int GRAIN, class E>
static inline void dot_runs(float* C, int64_t ldc, int M, int N, const float* A, int64_t lda, const E* const* runs,
                            int64_t ldb, int K, bool accumulate) {
    using namespace micro;
    int n = 0;
    if constexpr (GRAIN % W == 0) {
        const E* column[NV];
        for (; n + NV * W <= N; n += NV * W) {
            for (int v = 0; v < NV; v++) column[v] = runs[(n + v * W) / GRAIN] + (n + v * W) % GRAIN;
            for_row_blocks<MR>(M, [&](auto rows, int m) {
                runs_block<decltype(rows)::value, NV>(C + m * ldc + n, ldc, A + m * lda, lda, column, ldb, K, accumulate);
            });
        }
    }
    for (int run; n < N; n += run) {
        const int left = GRAIN - n % GRAIN;
        run = left < N - n ? left : N - n;
        dot_rows_by_columns(C + n, ldc, M, run, A, lda, runs[n / GRAIN] + n % GRAIN, ldb, K, accumulate);
    }
}

#endif
