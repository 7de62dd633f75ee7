// What the contraction kernels share: how rows are cut into register blocks whose height is known when compiling, and how
// far ahead of its use memory is asked for.
#ifndef CANDELA_BLOCKS_H
#define CANDELA_BLOCKS_H

#include <stdint.h>

#define MICRO_UNROLL _Pragma("GCC unroll 16")
#define MICRO_BLOCK static __attribute__((noinline))

// A distance that two pages of weights cover; measured for one row, where the bus is the limit.
#ifndef CANDELA_PREFETCH_BYTES
#define CANDELA_PREFETCH_BYTES 8192
#endif

namespace micro {

template <int N>
struct Count {
    static constexpr int value = N;
};

// Calls f(Count<rows>) for a number of rows known only when running, 1 <= rows <= MAX.
template <int MAX, class F>
static inline void with_count(int rows, const F& f) {
    if constexpr (MAX == 1) {
        f(Count<1>{});
    } else if (rows == MAX) {
        f(Count<MAX>{});
    } else {
        with_count<MAX - 1>(rows, f);
    }
}

// Cuts M rows into the fewest blocks of at most MAX rows, as even as they can be, and calls f(Count<rows>, first row).
template <int MAX, class F>
static inline void for_row_blocks(int M, const F& f) {
    const int blocks = (M + MAX - 1) / MAX;
    for (int i = 0, m = 0; i < blocks; i++) {
        const int rows = M / blocks + (i < M % blocks ? 1 : 0);
        with_count<MAX>(rows, [&](auto count) { f(count, m); });
        m += rows;
    }
}

}  // namespace micro

#endif
