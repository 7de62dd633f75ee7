// The thread team: one persistent thread a core, a barrier between stages, nothing started or joined while a step runs.
// Who waits spins briefly, then yields, then sleeps on a futex, so that an idle program costs nothing and
// two programs on one core do not fight.
//
// Every wait is on a counter that only grows: the value a thread waits to see change is its `sense`, and no reset can be
// missed. Floating point runs with denormals flushed; the caller's own mode is restored when a run ends.
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "abi.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#if defined(__AMX_TILE__)
#include "amx.h"
#endif

namespace {

constexpr size_t CACHE_LINE = 64;

struct Patience {
    int spins, yields;
};
// Some microseconds of spinning, then yielding: on a free core it returns at once, on a busy one it lets the thread that
// is waited for run. (Measured at six runnable threads a core: 7 times the step rate of spinning 25 times as long.)
constexpr Patience IN_A_STEP = {150, 4000};     // a stage may be uneven; sleeping would cost more than it saves
constexpr Patience BETWEEN_STEPS = {150, 800};  // some tenths of a millisecond: what the host does between two steps

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// A counter to wait on.
struct alignas(CACHE_LINE) Signal {
    std::atomic<uint32_t> value{0};
    std::atomic<uint32_t> sleepers{0};

    // Everyone who waits for a change goes on. A sleeper counts itself before it looks at `value` for the last time, so
    // either it sees this change or it is seen here.
    void advance() {
        value.fetch_add(1, std::memory_order_seq_cst);
        if (sleepers.load(std::memory_order_seq_cst) != 0)
            syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
    }

    void wait_while(uint32_t seen, Patience patience) {
        for (int i = 0; i < patience.spins; i++) {
            if (value.load(std::memory_order_acquire) != seen) return;
            pause();
        }
        for (int i = 0; i < patience.yields; i++) {
            if (value.load(std::memory_order_acquire) != seen) return;
            sched_yield();
        }
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        while (value.load(std::memory_order_seq_cst) == seen)
            syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
        sleepers.fetch_sub(1, std::memory_order_relaxed);
    }
};

#if defined(__aarch64__)
using FloatMode = uint64_t;
inline FloatMode float_mode() {
    FloatMode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
inline void set_float_mode(FloatMode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
constexpr FloatMode FLUSH_DENORMALS = 1u << 24;
#elif defined(__x86_64__)
using FloatMode = unsigned;
inline FloatMode float_mode() { return _mm_getcsr(); }
inline void set_float_mode(FloatMode mode) { _mm_setcsr(mode); }
constexpr FloatMode FLUSH_DENORMALS = 0x8040;  // FTZ and DAZ
#else
using FloatMode = unsigned;
inline FloatMode float_mode() { return 0; }
inline void set_float_mode(FloatMode) {}
constexpr FloatMode FLUSH_DENORMALS = 0;
#endif

double now_s() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// The system must grant the AMX state once per process, before the first thread that uses it.
bool permit_tiles() {
#if defined(__AMX_TILE__)
    constexpr int ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return true;
#endif
}

void leave_tiles() {
#if defined(__AMX_TILE__)
    tile_release();
#endif
}

struct Work {
    const Launch* launches;
    int64_t n;
    const int64_t* dims;
    double* seconds;  // null unless timed
};

struct Team;

struct Member {
    Team* team;
    int index;
    pthread_t id;
};

struct Team {
    int threads = 0;
    size_t scratch_bytes = 0;  // per thread, a multiple of the cache line
    char* scratch = nullptr;
    Member* members = nullptr;  // 1 .. threads - 1 are started threads
    int started = 1;
    std::atomic<bool> running{false};
    Work work = {};
    bool closing = false;
    Signal step;   // advances when there is a step to run, or to close
    Signal stage;  // advances when all threads have reached a barrier
    alignas(CACHE_LINE) std::atomic<int> arrived{0};

    void barrier() {
        const uint32_t sense = stage.value.load(std::memory_order_relaxed);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived.store(0, std::memory_order_relaxed);
            stage.advance();
        } else {
            stage.wait_while(sense, IN_A_STEP);
        }
    }

    void run_share(int thread) {
        const Work todo = work;  // after the last barrier the caller may write the next step's
        char* own = scratch + (size_t)thread * scratch_bytes;
        const bool timed = todo.seconds != nullptr;
        double begin = timed ? now_s() : 0.0;
        for (int64_t i = 0; i < todo.n; i++) {
            const Launch& launch = todo.launches[i];
            launch.fn(launch.bufs, todo.dims, own, thread, threads);
            const bool last = i + 1 == todo.n;  // nobody may read results before everyone is done
            if (threads > 1 && (launch.stage_end || last || timed)) barrier();
            if (timed && thread == 0) {
                const double end = now_s();
                todo.seconds[i] = end - begin;
                begin = end;
            }
        }
        leave_tiles();
    }
};

void* member_main(void* argument) {
    const Member& self = *static_cast<Member*>(argument);
    Team& team = *self.team;
    set_float_mode(float_mode() | FLUSH_DENORMALS);
    for (uint32_t seen = 0;; seen++) {
        team.step.wait_while(seen, BETWEEN_STEPS);
        if (team.closing) return nullptr;
        team.run_share(self.index);
    }
}

bool pin(pthread_t id, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= CPU_SETSIZE) return false;
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(id, sizeof set, &set) == 0;
}

bool start_members(Team& team) {
    for (; team.started < team.threads; team.started++) {
        Member& member = team.members[team.started];
        member.team = &team;
        member.index = team.started;
        if (pthread_create(&member.id, nullptr, member_main, &member) != 0) return false;
    }
    return true;
}

bool start(Team& team, int threads, size_t scratch_bytes) {
    if (scratch_bytes > SIZE_MAX / 2 / (size_t)threads) return false;
    team.threads = threads;
    team.scratch_bytes = (scratch_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    const size_t total = team.scratch_bytes * (size_t)threads;
    if (total > 0 && posix_memalign((void**)&team.scratch, CACHE_LINE, total) != 0) return false;
    team.members = new (std::nothrow) Member[(size_t)threads];
    if (team.members == nullptr) return false;
    sigset_t all, callers;  // signals are the host's business: its own threads take them
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &callers);
    const bool started = start_members(team);
    pthread_sigmask(SIG_SETMASK, &callers, nullptr);
    return started;
}

int run(Team* team, const Work& work) {
    if (team == nullptr || team->running.exchange(true, std::memory_order_acquire)) return 1;
    if (work.n > 0) {
        const FloatMode callers = float_mode();
        set_float_mode(callers | FLUSH_DENORMALS);
        team->work = work;
        if (team->threads > 1) team->step.advance();
        team->run_share(0);
        set_float_mode(callers);
    }
    team->running.store(false, std::memory_order_release);
    return 0;
}

}  // namespace

void* candela_team_create(int threads, size_t scratch_bytes_per_thread) {
    if (threads < 1 || !permit_tiles()) return nullptr;
    Team* team = new (std::nothrow) Team;
    if (team != nullptr && !start(*team, threads, scratch_bytes_per_thread)) {
        candela_team_destroy(team);
        return nullptr;
    }
    return team;
}

void candela_team_destroy(void* handle) {
    Team* team = static_cast<Team*>(handle);
    if (team == nullptr) return;
    team->closing = true;
    team->step.advance();
    for (int i = 1; i < team->started; i++) pthread_join(team->members[i].id, nullptr);
    free(team->scratch);
    delete[] team->members;
    delete team;
}

int candela_team_pin(void* handle, const int32_t* cpus) {
    Team& team = *static_cast<Team*>(handle);
    int failed = 0;
    for (int i = 0; i < team.threads; i++) {
        if (cpus[i] < 0) continue;
        failed += pin(i == 0 ? pthread_self() : team.members[i].id, cpus[i]) ? 0 : 1;
    }
    return failed;
}

int candela_run(void* team, const Launch* launches, int64_t n, const int64_t* dims) {
    return run(static_cast<Team*>(team), Work{launches, n, dims, nullptr});
}

int candela_run_timed(void* team, const Launch* launches, int64_t n, const int64_t* dims, double* seconds) {
    return run(static_cast<Team*>(team), Work{launches, n, dims, seconds});
}

uint64_t candela_required_features() {
    uint64_t features = 0;
#if defined(__SSE4_2__)
    features |= CANDELA_SSE42;
#endif
#if defined(__AVX__)
    features |= CANDELA_AVX;
#endif
#if defined(__AVX2__)
    features |= CANDELA_AVX2;
#endif
#if defined(__FMA__)
    features |= CANDELA_FMA;
#endif
#if defined(__F16C__)
    features |= CANDELA_F16C;
#endif
#if defined(__BMI2__)
    features |= CANDELA_BMI2;
#endif
#if defined(__AVX512F__)
    features |= CANDELA_AVX512F;
#endif
#if defined(__AVX512BW__)
    features |= CANDELA_AVX512BW;
#endif
#if defined(__AVX512DQ__)
    features |= CANDELA_AVX512DQ;
#endif
#if defined(__AVX512VL__)
    features |= CANDELA_AVX512VL;
#endif
#if defined(__AVX512CD__)
    features |= CANDELA_AVX512CD;
#endif
#if defined(__AVX512BF16__)
    features |= CANDELA_AVX512BF16;
#endif
#if defined(__AVX512VNNI__)
    features |= CANDELA_AVX512VNNI;
#endif
#if defined(__AMX_TILE__)
    features |= CANDELA_AMX_TILE;
#endif
#if defined(__AMX_BF16__)
    features |= CANDELA_AMX_BF16;
#endif
    return features;
}
