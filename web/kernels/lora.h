// LoRA: y += B (A x), for the linears of one value (at most three, whose rows follow one another as in their output).
// A and B are stored as 16-bit whole numbers, with a scale for each block, so that a set of rank 8 costs 4% of the bytes
// that a token reads; py_core/backends/wasm/lora.py writes them.
#pragma once
#include "kernels.h"

enum { LORA_PARTS = 3, LORA_RANK = 16 };
// The largest numbers of A, x, h = A x and B: so that a lane's sum, over 32 columns of A or LORA_RANK of B, has 32 bits.
enum { LORA_A = 4095, LORA_X = 16256, LORA_H = 8191, LORA_B = 16383 };

// A tensor's rows: first .. first + rows - 1 of these linears'. At b, in bytes from the Lora on: for each group of 4 rows
// and each pair of ranks a vector, whose lane is a row; then a float for each group, what a 1 is worth. No pairs: nothing
// is added.
typedef struct { u32 first, rows, pairs, b; } LoraPart;
// At a, in bytes from the Lora on: for each block of 32 columns and each group of 4 ranks (of the parts one after the
// other; a part's ranks are filled up to a multiple of 4) 4 floats, what a 1 is worth, then for each pair of columns a
// vector, whose lane is a rank.
typedef struct { u32 groups, a; LoraPart parts[LORA_PARTS]; u32 unused[2]; } Lora;
// h of a row of x, with what a 1 is worth for each part. 128 bytes, so that workers share no cache line.
typedef struct { int16_t q[LORA_PARTS][LORA_RANK]; f32 scale[LORA_PARTS]; u32 unused[5]; } LoraRow;
// Where each set lies, by its number; then the rows of h: if there is one row, each worker's own, else those of all rows.
typedef struct { u32 sets[16]; LoraRow one[MOST_WORKERS], many[]; } LoraSets;

INLINE const Lora *lora_of(u32 sets, u32 offset, const Context *c) {
  return at(((LoraSets *)at(sets))->sets[c->state->adapter] + offset);
}
INLINE LoraRow *lora_rows(u32 sets, const Context *c) {
  LoraSets *all = at(sets);
  return c->m == 1 ? all->one + c->worker : all->many;
}

// Adds B h to the sums of the 4 rows from `row` on.
INLINE v128_t lora_add(const Lora *lora, const LoraRow *h, u32 row, v128_t sums) {
  for (u32 p = 0; p < LORA_PARTS; p++) {
    const LoraPart *part = &lora->parts[p];
    const u32 pairs = part->pairs, group = (row - part->first) / 4;
    if (row < part->first || row >= part->first + part->rows || !pairs) continue;
    const uint8_t *data = (uint8_t *)lora + part->b;
    const int16_t *b = (int16_t *)data + group * pairs * 8, *q = h->q[p];
    v128_t sum = wasm_i32x4_dot_i16x8(load(b), splat4(q));
    for (u32 i = 1; i < pairs; i++) sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(load(b + 8 * i), splat4(q + 2 * i)));
    const f32 *scales = (f32 *)(data + (part->rows + 3) / 4 * pairs * 16);
    return madd(wasm_f32x4_convert_i32x4(sum), wasm_f32x4_splat(scales[group] * h->scale[p]), sums);
  }
  return sums;
}
