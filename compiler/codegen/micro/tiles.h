// What printed tile programs call besides micro-kernels: index arithmetic and reductions in 16 fixed lanes.
#ifndef CANDELA_TILES_H
#define CANDELA_TILES_H

#include <stdint.h>

static inline int64_t c_floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
static inline int64_t c_floor_mod(int64_t a, int64_t b) { return a - c_floor_div(a, b) * b; }
static inline bool c_inside(int64_t i, int64_t n) { return i >= 0 && i < n; }

static inline float lane_add(float a, float b) { return a + b; }
// A NaN on either side wins, as in the primitive MAX.
static inline float lane_max(float a, float b) { return (a > b) | (a != a) ? a : b; }

// The tree is part of the numeric recipe: halves of 8, 4, 2, 1.
static inline float lanes_add(float* v) {
    for (int w = 8; w; w /= 2)
        for (int l = 0; l < w; l++) v[l] = v[l] + v[l + w];
    return v[0];
}
static inline float lanes_max(float* v) {
    for (int w = 8; w; w /= 2)
        for (int l = 0; l < w; l++) v[l] = lane_max(v[l], v[l + w]);
    return v[0];
}

#endif
