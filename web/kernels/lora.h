// LoRA: y += B (A x), for the linears of one value (at most three, whose rows follow one another as in their output).
// A and B are stored as 16-bit integers, with a scale for each block, so that a set of rank 8 costs 4% of the bytes
// that a token reads; py_core/backends/wasm/lora.py writes them.
#pragma once
#include "kernels.h"

enum { LORA_PARTS = 3, LORA_RANK = 16 };
// The largest numbers of A, x, h = A x and B, such that a lane's sum, over 32 columns of A or LORA_RANK of B, fits 32
// bits.
enum { LORA_A = 4095, LORA_X = 16256, LORA_H = 8191, LORA_B = 16383 };

// A tensor's rows: first .. first + rows - 1 of these linears'. At b, in bytes from the Lora on: for each group of 4 rows
// and each pair of ranks a vector, whose lane is a row; then a float for each group, its scale. With 0 pairs nothing
// is added.
typedef struct { u32 first, rows, pairs, b; } LoraPart;
// At a, in bytes from the Lora on: for each block of 32 columns and each group of 4 ranks (part after part, with each
// part's ranks padded to a multiple of 4) 4 floats, the scales, then for each pair of columns a vector, whose lane is a
// rank.
typedef struct { u32 groups, a; LoraPart parts[LORA_PARTS]; u32 unused[2]; } Lora;
// h of a row of x, with a scale for each part. 128 bytes, so that workers share no cache line.
typedef struct { int16_t q[LORA_PARTS][LORA_RANK]; f32 scale[LORA_PARTS]; u32 unused[5]; } LoraRow;
// The place of each set, by its number; then the rows of h: with one row, each worker's own, else those of all rows.
typedef struct { u32 sets[16]; LoraRow one[MOST_WORKERS], many[]; } LoraSets;

INLINE const Lora *lora_of(u32 sets, u32 offset, const Context *c) {
  return at(((LoraSets *)at(sets))->sets[c->state->adapter] + offset);
}
INLINE LoraRow *lora_rows(u32 sets, const Context *c) {
  LoraSets *all = at(sets);
  return c->m == 1 ? all->one + c->worker : all->many;
}

// The part that contains a row, or 0.
INLINE const LoraPart *lora_part(const Lora *lora, u32 row) {
  for (const LoraPart *part = lora->parts; part < lora->parts + LORA_PARTS; part++)
    if (row - part->first < part->rows) return part->pairs ? part : 0;
  return 0;
}

// Adds B h to the sums of GROUPS groups of 4 rows of one part, from the group's number `group` on, for LANES rows of x.
INLINE void lora_add_groups(const u32 GROUPS, const u32 LANES, const Lora *lora, const LoraPart *part, u32 group,
                            const LoraRow *h, v128_t *sums) {
  const u32 pairs = part->pairs, p = (u32)(part - lora->parts);
  const uint8_t *b = (uint8_t *)lora + part->b, *scales = b + (part->rows + 3) / 4 * pairs * 16 + group * 4;
  v128_t dots[4][4];
  b += group * pairs * 16;
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
    for (u32 i = 0; i < LANES; i++) dots[g][i] = wasm_i32x4_const_splat(0);
  for (u32 pair = 0; pair < pairs; pair++) {
    v128_t q[4];
#pragma unroll
    for (u32 i = 0; i < LANES; i++) q[i] = splat4(h[i].q[p] + 2 * pair);
#pragma unroll
    for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
      for (u32 i = 0; i < LANES; i++)
        dots[g][i] = wasm_i32x4_add(dots[g][i], wasm_i32x4_dot_i16x8(load(b + (g * pairs + pair) * 16), q[i]));
  }
#pragma unroll
  for (u32 i = 0; i < LANES; i++) {
    const v128_t worth = wasm_f32x4_splat(h[i].scale[p]);
#pragma unroll
    for (u32 g = 0; g < GROUPS; g++)
      sums[g * LANES + i] = madd(wasm_f32x4_convert_i32x4(dots[g][i]), wasm_f32x4_mul(splat4(scales + 4 * g), worth),
                                 sums[g * LANES + i]);
  }
}

// The same for groups that may be of several parts, and for the first `lanes` rows of x: sums[group * lanes + row].
INLINE void lora_add(const Lora *lora, const LoraRow *h, u32 row, u32 groups, u32 lanes, v128_t *sums) {
  const LoraPart *part = lora_part(lora, row), *last = lora_part(lora, row + 4 * groups - 1);
  if (part && part == last) {
    const u32 group = (row - part->first) / 4;
    if (groups == 4 && lanes == 1) { lora_add_groups(4, 1, lora, part, group, h, sums); return; }
    if (groups == 2 && lanes == 4) { lora_add_groups(2, 4, lora, part, group, h, sums); return; }
  }
  for (u32 g = 0; g < groups; g++, sums += lanes) {
    if (!(part = lora_part(lora, row + 4 * g))) continue;
    const u32 group = (row + 4 * g - part->first) / 4;
    if (lanes == 4) lora_add_groups(1, 4, lora, part, group, h, sums);
    else
      for (u32 i = 0; i < lanes; i++) lora_add_groups(1, 1, lora, part, group, h + i, sums + i);
  }
}
