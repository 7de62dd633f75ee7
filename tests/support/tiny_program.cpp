// A program of four kernels, written by hand: enough to need every kind of buffer, a barrier, and the block table.
//   logits[r, v] = head[v] . table[token of row r]  +  sum of (token + 1) over the row's history, read from the cache
#include "kernels.h"

enum { WIDTH = 5, VOCABULARY = 70, BLOCK = 16 };
enum { T, R, B, M, NB };

// tokens, table -> rows [T, WIDTH]
CANDELA_KERNEL(k_rows) {
    const int32_t* tokens = (const int32_t*)bufs[0];
    const float* table = (const float*)bufs[1];
    float* rows = (float*)bufs[2];
    for (int64_t t = c_share(dims[T], thread, threads); t < c_share(dims[T], thread + 1, threads); t++)
        memcpy(rows + t * WIDTH, table + tokens[t] * WIDTH, WIDTH * sizeof(float));
}

// tokens, slots -> cache [NB, BLOCK]
CANDELA_KERNEL(k_store) {
    const int32_t *tokens = (const int32_t*)bufs[0], *slots = (const int32_t*)bufs[1];
    float* cache = (float*)bufs[2];
    for (int64_t t = c_share(dims[T], thread, threads); t < c_share(dims[T], thread + 1, threads); t++)
        cache[slots[t]] = (float)(tokens[t] + 1);
}

// positions, sequence, block_tables, logit_rows, cache -> history [R]
CANDELA_KERNEL(k_history) {
    const int32_t *positions = (const int32_t*)bufs[0], *sequence = (const int32_t*)bufs[1];
    const int32_t *tables = (const int32_t*)bufs[2], *logit_rows = (const int32_t*)bufs[3];
    const float* cache = (const float*)bufs[4];
    float* history = (float*)bufs[5];
    for (int64_t r = c_share(dims[R], thread, threads); r < c_share(dims[R], thread + 1, threads); r++) {
        const int32_t* table = tables + sequence[logit_rows[r]] * dims[M];
        float total = 0;
        for (int32_t p = 0; p <= positions[logit_rows[r]]; p++) total += cache[table[p / BLOCK] * BLOCK + p % BLOCK];
        history[r] = total;
    }
}

// rows, head (packed), logit_rows, history -> logits [R, VOCABULARY]
CANDELA_KERNEL(k_logits) {
    const float* rows = (const float*)bufs[0];
    const uint16_t* head = (const uint16_t*)bufs[1];
    const int32_t* logit_rows = (const int32_t*)bufs[2];
    const float* history = (const float*)bufs[3];
    float* logits = (float*)bufs[4];
    float* panel = (float*)scratch;
    for (int64_t r = c_share(dims[R], thread, threads); r < c_share(dims[R], thread + 1, threads); r++) {
        for (int64_t n = 0; n < VOCABULARY; n += 64) {
            const uint16_t* columns = head + n / 64 * ((WIDTH + 1) / 2 * 128);
            dot_packed_bf16(panel, 64, 1, rows + logit_rows[r] * WIDTH, WIDTH, columns, WIDTH, false);
            for (int64_t v = n; v < c_min(n + 64, VOCABULARY); v++)
                logits[r * VOCABULARY + v] = panel[v - n] + history[r];
        }
    }
}
