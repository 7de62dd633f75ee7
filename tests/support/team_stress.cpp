// Runs the thread team hard and checks what it promises. Built with and without the thread sanitiser.
// Arguments: threads, steps. Prints "ok"; any broken promise ends with status 1 and its name.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
static bool flushes() { return (_mm_getcsr() & 0x8040) == 0x8040; }
#else
static bool flushes() { return true; }
#endif

static void promise(bool holds, const char* name) {
    if (holds) return;
    printf("broken: %s\n", name);
    exit(1);
}

// Every thread adds to its own cells in one stage and reads all of them in the next: a missing barrier is a race.
static void k_write(void* const* bufs, const int64_t* dims, char* scratch, int thread, int threads) {
    int64_t* cells = (int64_t*)bufs[0];
    promise(flushes(), "denormals are flushed in kernels");
    promise((uintptr_t)scratch % 64 == 0, "scratch is aligned");
    memset(scratch, thread, 100);
    for (int64_t i = c_share(dims[0], thread, threads); i < c_share(dims[0], thread + 1, threads); i++) cells[i]++;
    for (int i = 0; i < 100; i++) promise(scratch[i] == thread, "scratch is private");
}

static void k_total(void* const* bufs, const int64_t* dims, char*, int thread, int) {
    const int64_t* cells = (const int64_t*)bufs[0];
    int64_t* totals = (int64_t*)bufs[1];
    int64_t total = 0;
    for (int64_t i = 0; i < dims[0]; i++) total += cells[i];
    totals[thread * 8] = total;
}

int main(int, char** argv) {
    const int threads = atoi(argv[1]), steps = atoi(argv[2]);
    const int64_t dims[1] = {1000};
    static int64_t cells[1000], totals[64 * 8];
    void* bufs[2] = {cells, totals};
    void* team = candela_team_create(threads, 100);
    promise(team != nullptr, "a team starts");
    promise(candela_team_create(0, 100) == nullptr, "a team of nobody does not");
    const Launch launches[4] = {{k_write, bufs, 1}, {k_total, bufs, 1}, {k_write, bufs, 1}, {k_total, bufs, 0}};
    const bool before = flushes();
    double seconds[4];
    for (int step = 0; step < steps; step++) {
        if (step % 64 == 63) usleep(3000);  // long enough to fall asleep
        const int status = step % 2 ? candela_run(team, launches, 4, dims)
                                    : candela_run_timed(team, launches, 4, dims, seconds);
        promise(status == 0, "a step runs");
        for (int t = 0; t < threads; t++) promise(totals[t * 8] == 2000 * (step + 1), "a stage sees the one before");
    }
    promise(flushes() == before, "the caller's float mode comes back");
    promise(candela_run(team, launches, 0, dims) == 0, "an empty step is a step");
    promise(candela_run(nullptr, launches, 4, dims) == 1, "no team runs nothing");
    int32_t nowhere[64];
    for (int t = 0; t < 64; t++) nowhere[t] = -1;
    promise(candela_team_pin(team, nowhere) == 0, "pinning nobody succeeds");
    candela_team_destroy(team);
    candela_team_destroy(nullptr);
    printf("ok\n");
    return 0;
}
