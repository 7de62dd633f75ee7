// C = A * panel, or C += A * panel, on AMX bf16 tiles; the tile macros come from amx.h or amx_emulated.h.
// An AMX panel is [4 groups of 16 columns][ceil(K / 32)][16 pairs of k][16 columns][2], zero where k >= K: 1 KiB tiles in
// the order in which they are multiplied.
//
// Numeric contract: an element of C is one chain over blocks of 32 k, begun at 0 or at C; within a block the hardware's
// order, which looks at its row of A and its column of B only.
#ifndef CANDELA_PACKED_AMX_H
#define CANDELA_PACKED_AMX_H

#include <stdint.h>
#include <string.h>

#include "blocks.h"

namespace micro {

constexpr int TILE_ROWS = 16, TILE_COLUMNS = 16, TILE_K = 32;
constexpr int64_t TILE_WEIGHTS = TILE_K * TILE_COLUMNS;

// Up to 32 rows of A. The last block of k goes through `tail` when K does not fill it, so A is not read beyond K.
struct AmxRows {
    const uint16_t* A;
    int64_t lda;
    int full_blocks;  // of k
    alignas(64) uint16_t tail[2 * TILE_ROWS][TILE_K];

    AmxRows(const uint16_t* a, int64_t row_stride, int rows, int K) : A(a), lda(row_stride), full_blocks(K / TILE_K) {
        const int left = K % TILE_K;
        if (left == 0) return;
        memset(tail, 0, sizeof tail);
        for (int r = 0; r < rows; r++)
            memcpy(tail[r], A + r * lda + K - left, sizeof(uint16_t) * (size_t)left);
    }
    const uint16_t* block(int row, int k_block) const {
        return k_block < full_blocks ? A + row * lda + k_block * TILE_K : tail[row];
    }
    int64_t stride_bytes(int k_block) const {
        return k_block < full_blocks ? lda * (int64_t)sizeof(uint16_t) : (int64_t)sizeof tail[0];
    }
};

// What a pass over the panel asks memory for: its own tiles a fixed distance ahead, half of the next panel, or nothing.
enum class Ahead { OWN, NEXT, NONE };

static inline void prefetch_tile(const void* tile) {
    MICRO_UNROLL for (int i = 0; i < 16; i++) __builtin_prefetch((const char*)tile + i * 64, 0, 2);
}
static inline void prefetch_own(const uint16_t* tile) { prefetch_tile((const char*)tile + CANDELA_PREFETCH_BYTES); }

// Tiles 0-3 accumulate, 4 holds A, 5-7 hold B.
template <Ahead AHEAD>
MICRO_BLOCK void amx_one_by_four(float* C, int64_t ldc, const AmxRows& A, int rows, const uint16_t* panel, int blocks,
                                 bool accumulate, const uint16_t* ahead) {
    TileConfig config = {};
    config.palette = 1;
    for (int t = 0; t < 8; t++) {
        config.row_bytes[t] = 64;
        config.rows[t] = (uint8_t)(t < 5 ? rows : TILE_ROWS);
    }
    tile_configure(config);
    const int64_t c_bytes = ldc * (int64_t)sizeof(float);
    if (accumulate) {
        TILE_LOAD(0, C, c_bytes);
        TILE_LOAD(1, C + 16, c_bytes);
        TILE_LOAD(2, C + 32, c_bytes);
        TILE_LOAD(3, C + 48, c_bytes);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    const uint16_t *b0 = panel, *b1 = b0 + blocks * TILE_WEIGHTS;
    const uint16_t *b2 = b1 + blocks * TILE_WEIGHTS, *b3 = b2 + blocks * TILE_WEIGHTS;
    for (int k = 0; k < blocks; k++) {
        const int64_t at = k * TILE_WEIGHTS;
        if constexpr (AHEAD == Ahead::OWN) {
            prefetch_own(b0 + at);
            prefetch_own(b1 + at);
            prefetch_own(b2 + at);
            prefetch_own(b3 + at);
        } else if constexpr (AHEAD == Ahead::NEXT) {
            prefetch_tile(ahead + 2 * at);
            prefetch_tile(ahead + 2 * at + TILE_WEIGHTS);
        }
        TILE_LOAD(4, A.block(0, k), A.stride_bytes(k));
        TILE_LOAD(5, b0 + at, 64);
        TILE_LOAD(6, b1 + at, 64);
        TILE_LOAD(7, b2 + at, 64);
        TILE_DOT_BF16(0, 4, 5);
        TILE_LOAD(5, b3 + at, 64);
        TILE_DOT_BF16(1, 4, 6);
        TILE_DOT_BF16(2, 4, 7);
        TILE_DOT_BF16(3, 4, 5);
    }
    TILE_STORE(0, C, c_bytes);
    TILE_STORE(1, C + 16, c_bytes);
    TILE_STORE(2, C + 32, c_bytes);
    TILE_STORE(3, C + 48, c_bytes);
}

// 16 + `low_rows` rows by 32 columns: tiles 0 and 1 accumulate the first 16 rows, 2 and 3 the others; 4 and 5 hold A, 6
// and 7 hold B.
template <Ahead AHEAD>
MICRO_BLOCK void amx_two_by_two(float* C, int64_t ldc, const AmxRows& A, int low_rows, const uint16_t* panel, int blocks,
                                bool accumulate, const uint16_t* ahead) {
    TileConfig config = {};
    config.palette = 1;
    for (int t = 0; t < 8; t++) {
        config.row_bytes[t] = 64;
        config.rows[t] = (uint8_t)(t == 2 || t == 3 || t == 5 ? low_rows : TILE_ROWS);
    }
    tile_configure(config);
    const int64_t c_bytes = ldc * (int64_t)sizeof(float);
    for (int pair = 0; pair < 2; pair++) {
        float *high = C + pair * 2 * TILE_COLUMNS, *low = high + TILE_ROWS * ldc;
        if (accumulate) {
            TILE_LOAD(0, high, c_bytes);
            TILE_LOAD(1, high + 16, c_bytes);
            TILE_LOAD(2, low, c_bytes);
            TILE_LOAD(3, low + 16, c_bytes);
        } else {
            TILE_ZERO(0);
            TILE_ZERO(1);
            TILE_ZERO(2);
            TILE_ZERO(3);
        }
        const uint16_t *b0 = panel + pair * 2 * blocks * TILE_WEIGHTS, *b1 = b0 + blocks * TILE_WEIGHTS;
        for (int k = 0; k < blocks; k++) {
            const int64_t at = k * TILE_WEIGHTS;
            if constexpr (AHEAD == Ahead::OWN) {
                prefetch_own(b0 + at);
                prefetch_own(b1 + at);
            } else if constexpr (AHEAD == Ahead::NEXT) {
                prefetch_tile(ahead + pair * blocks * TILE_WEIGHTS + at);
            }
            TILE_LOAD(6, b0 + at, 64);
            TILE_LOAD(4, A.block(0, k), A.stride_bytes(k));
            TILE_LOAD(7, b1 + at, 64);
            TILE_LOAD(5, A.block(TILE_ROWS, k), A.stride_bytes(k));
            TILE_DOT_BF16(0, 4, 6);
            TILE_DOT_BF16(1, 4, 7);
            TILE_DOT_BF16(2, 5, 6);
            TILE_DOT_BF16(3, 5, 7);
        }
        TILE_STORE(0, high, c_bytes);
        TILE_STORE(1, high + 16, c_bytes);
        TILE_STORE(2, low, c_bytes);
        TILE_STORE(3, low + 16, c_bytes);
    }
}

template <Ahead AHEAD>
static inline void amx_rows(float* C, int64_t ldc, const AmxRows& A, int rows, const uint16_t* panel, int blocks,
                            bool accumulate, const uint16_t* ahead) {
    if (rows > TILE_ROWS) {
        amx_two_by_two<AHEAD>(C, ldc, A, rows - TILE_ROWS, panel, blocks, accumulate, ahead);
    } else {
        amx_one_by_four<AHEAD>(C, ldc, A, rows, panel, blocks, accumulate, ahead);
    }
}

}  // namespace micro

// C [M, 64] from A [M, K] in bf16 and one AMX panel. K may be any number: the panel is padded, A need not be. `next` as in
// packed.h, with more than 32 rows.
template <class = void>
static inline void dot_packed_bf16_amx(float* C, int64_t ldc, int M, const uint16_t* A, int64_t lda,
                                       const uint16_t* panel, int K, bool accumulate,
                                       const uint16_t* next = nullptr) {
    using namespace micro;
    constexpr int PASS = 2 * TILE_ROWS;
    const int blocks = (K + TILE_K - 1) / TILE_K;
    const int64_t half = 2 * blocks * TILE_WEIGHTS;
    for (int m = 0; m < M; m += PASS) {
        const int rows = M - m < PASS ? M - m : PASS;
        const AmxRows a(A + m * lda, lda, rows, K);
        float* c = C + m * ldc;
        if (m == 0 && (M <= PASS || next == nullptr)) {
            amx_rows<Ahead::OWN>(c, ldc, a, rows, panel, blocks, accumulate, nullptr);
        } else if (next != nullptr && m <= PASS) {
            amx_rows<Ahead::NEXT>(c, ldc, a, rows, panel, blocks, accumulate, next + (m == 0 ? 0 : half));
        } else {
            amx_rows<Ahead::NONE>(c, ldc, a, rows, panel, blocks, accumulate, nullptr);
        }
    }
}

#endif
