// AMX tile instructions as macros over tile numbers. Written as assembly, not intrinsics: GCC 12's intrinsics do not say
// which memory they read, so that it may drop stores to it; these do.
#ifndef CANDELA_AMX_H
#define CANDELA_AMX_H

#include <stdint.h>

struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static inline void tile_configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }

// Gives the tile state back, so that a thread switch saves nothing and the core may rest.
static inline void tile_release() { asm volatile("tilerelease"); }

#define TILE_ZERO(t) asm volatile("tilezero %%tmm" #t : :)
#define TILE_LOAD(t, base, stride)                                                                             \
    asm volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"((const void*)(base)), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(t, base, stride)                                                                            \
    asm volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"((void*)(base)), "r"((int64_t)(stride)) : "memory")
// c += a * b: a holds rows of bf16 pairs, b the matching pairs of k, one column after the other.
#define TILE_DOT_BF16(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#endif
