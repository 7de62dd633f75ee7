// The contract between generated kernels, the thread team and the Python runtime. Everything that crosses
// a shared object's border is declared here; nothing here depends on the CPU level.
#ifndef CANDELA_ABI_H
#define CANDELA_ABI_H

#include <stddef.h>
#include <stdint.h>

#define CANDELA_EXPORT extern "C" __attribute__((visibility("default")))

// A kernel runs on every thread of the team with the same `bufs` and `dims`; `thread` of `threads` says which
// share of the work is its own. `scratch` is 64-byte aligned, private to the thread, and not kept between kernels.
typedef void (*KernelFn)(void* const* bufs, const int64_t* dims, char* scratch, int thread, int threads);

// One entry of a step. Kernels up to and including the next `stage_end` do not depend on each other, so threads
// run through them freely; a nonzero `stage_end` puts a barrier after this launch.
struct Launch {
    KernelFn fn;
    void* const* bufs;
    int64_t stage_end;
};

// Defines a kernel that the runtime can look up: CANDELA_KERNEL(k_norm) { ... }
#define CANDELA_KERNEL(name)                                                                           \
    CANDELA_EXPORT void name([[maybe_unused]] void* const* bufs, [[maybe_unused]] const int64_t* dims,  \
                             [[maybe_unused]] char* scratch, [[maybe_unused]] int thread,               \
                             [[maybe_unused]] int threads)

// Thread `thread` of `threads` owns items [c_share(n, thread, threads), c_share(n, thread + 1, threads)) of n.
static inline int64_t c_share(int64_t n, int thread, int threads) { return n * thread / threads; }

static inline int64_t c_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t c_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t c_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Bits of candela_required_features(). `compiler/runtime/cpu.py` holds the same table.
enum CandelaFeature : uint64_t {
    CANDELA_SSE42 = 1u << 0,
    CANDELA_AVX = 1u << 1,
    CANDELA_AVX2 = 1u << 2,
    CANDELA_FMA = 1u << 3,
    CANDELA_F16C = 1u << 4,
    CANDELA_BMI2 = 1u << 5,
    CANDELA_AVX512F = 1u << 6,
    CANDELA_AVX512BW = 1u << 7,
    CANDELA_AVX512DQ = 1u << 8,
    CANDELA_AVX512VL = 1u << 9,
    CANDELA_AVX512CD = 1u << 10,
    CANDELA_AVX512BF16 = 1u << 11,
    CANDELA_AVX512VNNI = 1u << 12,
    CANDELA_AMX_TILE = 1u << 13,
    CANDELA_AMX_BF16 = 1u << 14,
};

// The team: thread 0 is whoever calls candela_run, the others are started once and wait between steps.

// Null when threads < 1, when memory or threads run out, or when the system refuses the AMX state that this
// level needs.
CANDELA_EXPORT void* candela_team_create(int threads, size_t scratch_bytes_per_thread);

// Joins the threads. No run may be in progress.
CANDELA_EXPORT void candela_team_destroy(void* team);

// Keeps thread i on CPU cpus[i]; a negative entry leaves that thread alone. Entry 0 is the calling thread.
// Returns 0, or the number of threads that could not be pinned.
CANDELA_EXPORT int candela_team_pin(void* team, const int32_t* cpus);

// Runs n launches to the end. Returns 0, or 1 when the team is null or already running.
CANDELA_EXPORT int candela_run(void* team, const Launch* launches, int64_t n, const int64_t* dims);

// The same with a barrier after every launch; seconds[i] is the wall time of launch i.
CANDELA_EXPORT int candela_run_timed(void* team, const Launch* launches, int64_t n, const int64_t* dims,
                                     double* seconds);

// What the CPU must have to run this shared object, as CandelaFeature bits.
CANDELA_EXPORT uint64_t candela_required_features();

#endif
