// Products of float32 matrices in tiles that fit the registers: the building block of training.
#include "training.h"

// Rows of a tile of C. With more rows V8 keeps some sums in memory, at half the speed (docs/decisions/0036).
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

// `rows` of C, ROWS at a time. A separate function for each height, so that none takes the others' registers.
#define HEIGHT(number, across) \
  static __attribute__((noinline)) void tiles_##number##_##across(u32 rows, u32 columns, u32 depth, Left a, Right b, \
                                                                  const f32 *plus, f32 factor, f32 *c, u32 stride) { \
    for (u32 i = 0; i < rows; i += number, a.x += number * a.row) \
      for (u32 j = 0, strip = 0; j < columns; j += STRIP, strip += b.strip) \
        tile_of(number, across, columns - j, depth, a, b.x + strip, b.step, plus ? plus + i * stride + j : 0, factor, \
                c + i * stride + j, stride); \
  }
#define HEIGHTS(across) HEIGHT(1, across) HEIGHT(4, across)
HEIGHTS(0)
HEIGHTS(1)
#undef HEIGHT

void product(u32 rows, u32 columns, u32 depth, Left a, Right b, const f32 *plus, f32 factor, f32 *c, u32 stride) {
  const u32 whole = rows / TILE_ROWS * TILE_ROWS;
  const Left rest = {a.x + whole * a.row, a.row, a.step};
  const f32 *rest_plus = plus ? plus + whole * stride : 0;
  if (a.step == 1) {
    tiles_4_0(whole, columns, depth, a, b, plus, factor, c, stride);
    tiles_1_0(rows - whole, columns, depth, rest, b, rest_plus, factor, c + whole * stride, stride);
  } else {
    tiles_4_1(whole, columns, depth, a, b, plus, factor, c, stride);
    tiles_1_1(rows - whole, columns, depth, rest, b, rest_plus, factor, c + whole * stride, stride);
  }
}

void transposed_strips(const f32 *x, u32 stride, u32 columns, u32 depth, f32 *to) {
  for (u32 j = 0; j < columns; j += STRIP, to += depth * STRIP)
    for (u32 i = 0; i < STRIP; i += 4) {
      const f32 *rows = x + (j + i) * stride;
      u32 p = 0;
      if (j + i + 4 <= columns)
        for (; p + 4 <= depth; p += 4) {
          v128_t four[4];
          for (u32 r = 0; r < 4; r++) four[r] = load(rows + r * stride + p);
          transpose4(four);
          for (u32 r = 0; r < 4; r++) wasm_v128_store(to + (p + r) * STRIP + i, four[r]);
        }
      for (; p < depth; p++)
        for (u32 r = 0; r < 4; r++) to[p * STRIP + i + r] = j + i + r < columns ? rows[r * stride + p] : 0;
    }
}
