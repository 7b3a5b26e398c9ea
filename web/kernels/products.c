// Products of float32 matrices in tiles that the registers hold: what training is made of.
#include "training.h"

// Rows of a tile of C. With more of them V8 keeps some sums in memory, at half the speed (docs/decisions.md).
enum { TILE_ROWS = 4 };

// A tile of ROWS rows and up to STRIP columns.
INLINE void tile_of(const u32 ROWS, const u32 across, u32 columns, u32 depth, Left a, const f32 *b, u32 b_step, const f32 *plus,
                    f32 factor, f32 *c, u32 stride) {
  v128_t sums[TILE_ROWS][2];
#pragma unroll
  for (u32 i = 0; i < ROWS; i++) sums[i][0] = sums[i][1] = wasm_f32x4_const_splat(0);
  const f32 *x = a.x;
  for (u32 p = 0; p < depth; p++, b += b_step, x += across ? a.step : 1) {
    const v128_t left = load(b), right = load(b + 4);
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
      const v128_t value = splat4(across ? x + i : x + i * a.row);
      sums[i][0] = madd(value, left, sums[i][0]);
      sums[i][1] = madd(value, right, sums[i][1]);
    }
  }
  const v128_t by = wasm_f32x4_splat(factor);
#pragma unroll
  for (u32 i = 0; i < ROWS; i++)
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
      if (columns <= 4 * half) continue;
      const u32 at_sum = i * stride + 4 * half;
      v128_t sum = wasm_f32x4_mul(sums[i][half], by);
      if (plus) sum = wasm_f32x4_add(load(plus + at_sum), sum);
      store_some(c + at_sum, sum, columns - 4 * half);
    }
}

// One function for each height, so that none takes the others' registers.
#define HEIGHT(number, across) \
  static __attribute__((noinline)) void tile_##number##_##across(u32 columns, u32 depth, Left a, const f32 *b, u32 b_step, \
                                                                 const f32 *plus, f32 factor, f32 *c, u32 stride) { \
    tile_of(number, across, columns, depth, a, b, b_step, plus, factor, c, stride); \
  }
#define HEIGHTS(across) HEIGHT(1, across) HEIGHT(2, across) HEIGHT(3, across) HEIGHT(4, across)
HEIGHTS(0)
HEIGHTS(1)
#undef HEIGHT

void product(u32 rows, u32 columns, u32 depth, Left a, Right b, const f32 *plus, f32 factor, f32 *c, u32 stride) {
  const u32 across = a.step != 1;
  for (u32 i = 0; i < rows; i += TILE_ROWS) {
    const u32 height = min_u(TILE_ROWS, rows - i);
    const Left some = {a.x + i * a.row, a.row, a.step};
    for (u32 j = 0, strip = 0; j < columns; j += STRIP, strip += b.strip) {
      const u32 first = i * stride + j;
#define HEIGHT(number, across) \
  case number + 8 * across: \
    tile_##number##_##across(columns - j, depth, some, b.x + strip, b.step, plus ? plus + first : 0, factor, c + first, stride); \
    break;
      switch (height + 8 * across) { HEIGHTS(0) HEIGHTS(1) }
#undef HEIGHT
    }
  }
}

void transposed_strips(const f32 *x, u32 stride, u32 columns, u32 depth, f32 *to) {
  for (u32 j = 0; j < columns; j += STRIP, to += depth * STRIP)
    for (u32 i = 0; i < STRIP; i++) {
      const f32 *row = x + (j + i) * stride;
      for (u32 p = 0; p < depth; p++) to[p * STRIP + i] = j + i < columns ? row[p] : 0;
    }
}
