// The macros of amx.h in plain C++, so that kernels written with them run on any CPU. For tests: it is slow, and it traps
// on what the hardware refuses (a tile that is not configured, shapes that do not fit).
#ifndef CANDELA_AMX_EMULATED_H
#define CANDELA_AMX_EMULATED_H

#include <stdint.h>
#include <string.h>

struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

namespace micro {

struct EmulatedTiles {
    TileConfig config;
    uint8_t data[8][16][64];
};

inline thread_local EmulatedTiles emulated_tiles;

static inline void emulated_check(bool holds) {
    if (!holds) __builtin_trap();
}

// Rows of tile t; 0 before it is configured.
static inline int emulated_rows(int t) {
    emulated_check(emulated_tiles.config.palette == 1 && emulated_tiles.config.rows[t] > 0);
    return emulated_tiles.config.rows[t];
}

static inline void emulated_load(int t, const void* base, int64_t stride) {
    const int rows = emulated_rows(t);
    memset(emulated_tiles.data[t], 0, sizeof emulated_tiles.data[t]);
    for (int r = 0; r < rows; r++)
        memcpy(emulated_tiles.data[t][r], (const char*)base + r * stride, emulated_tiles.config.row_bytes[t]);
}

static inline void emulated_store(int t, void* base, int64_t stride) {
    const int rows = emulated_rows(t);
    for (int r = 0; r < rows; r++)
        memcpy((char*)base + r * stride, emulated_tiles.data[t][r], emulated_tiles.config.row_bytes[t]);
}

static inline float emulated_bf16(const uint8_t* row, int i) {
    uint32_t bits = (uint32_t)row[2 * i] << 16 | (uint32_t)row[2 * i + 1] << 24;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Even and odd k are summed apart, from 0, and added to c at the end. Source: Intel SDM, TDPBF16PS.
static inline void emulated_dot(int c, int a, int b) {
    EmulatedTiles& t = emulated_tiles;
    const int rows = emulated_rows(a), pairs = t.config.row_bytes[a] / 4, columns = t.config.row_bytes[b] / 4;
    emulated_check(emulated_rows(c) == rows && emulated_rows(b) == pairs && t.config.row_bytes[c] / 4 == columns);
    for (int m = 0; m < rows; m++) {
        for (int n = 0; n < columns; n++) {
            float even = 0.0f, odd = 0.0f, sum;
            for (int k = 0; k < pairs; k++) {
                even = __builtin_fmaf(emulated_bf16(t.data[a][m], 2 * k), emulated_bf16(t.data[b][k], 2 * n), even);
                odd = __builtin_fmaf(emulated_bf16(t.data[a][m], 2 * k + 1), emulated_bf16(t.data[b][k], 2 * n + 1), odd);
            }
            memcpy(&sum, &t.data[c][m][4 * n], sizeof sum);
            sum += even + odd;
            memcpy(&t.data[c][m][4 * n], &sum, sizeof sum);
        }
    }
}

}  // namespace micro

static inline void tile_configure(const TileConfig& config) {
    memset(&micro::emulated_tiles, 0, sizeof micro::emulated_tiles);
    micro::emulated_tiles.config = config;
    for (int t = 0; t < 8; t++) micro::emulated_check(config.rows[t] <= 16 && config.row_bytes[t] <= 64);
}
static inline void tile_release() { memset(&micro::emulated_tiles, 0, sizeof micro::emulated_tiles); }

#define TILE_ZERO(t) memset(micro::emulated_tiles.data[t], 0, sizeof micro::emulated_tiles.data[t])
#define TILE_LOAD(t, base, stride) micro::emulated_load(t, base, stride)
#define TILE_STORE(t, base, stride) micro::emulated_store(t, base, stride)
#define TILE_DOT_BF16(c, a, b) micro::emulated_dot(c, a, b)

#endif
