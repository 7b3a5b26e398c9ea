// The base's linears in training: y = x W^T + bias for all rows of a pack, and the gradient of x. Parts of W are
// converted to floats that fit the first-level cache, and multiplied by many rows of x.
#include "training.h"

// d and m of four rows, from one half of a block on.
typedef struct { v128_t d, m; } Scales;
INLINE Scales scales_of(const f32 *scale, u32 kind, u32 high) {
  if (!is_split(kind)) return (Scales){load(scale), load(scale + 16)};
  if (kind == SIXES) {
    const v128_t d = load(scale + 16 * high);
    return (Scales){d, wasm_f32x4_mul(d, wasm_f32x4_const_splat(-32))};
  }
  if (high) return (Scales){load(scale + 16), load(scale + 32)};
  return (Scales){load(scale), wasm_f32x4_add(load(scale + 32), load(scale + 48))};
}

INLINE v128_t float_weights(const PackedMatrix *w, u32 row, u32 column) {
  const u32 at_four = row * w->columns + column * 4;
  if (w->kind == FLOAT32) return load((f32 *)at(w->data) + at_four);
  const v128_t halves = wasm_v128_load64_zero((uint16_t *)at(w->data) + at_four);
  return w->kind == FLOAT16 ? halves4(halves) : wasm_i32x4_shl(wasm_u32x4_extend_low_u16x8(halves), 16);
}

INLINE const uint8_t *band_of(const PackedMatrix *w, u32 row, u32 column) {
  return (uint8_t *)at(w->data) + (row / 16 * (w->columns / 32) + column / 32) * block_bytes_of(w->kind);
}

void weights_across(const PackedMatrix *w, u32 row, u32 rows, u32 column, u32 columns, f32 *to) {
  const u32 bits = bits_of(w->kind);
  for (u32 r = 0; r < rows; r += 4) {
    f32 *out = to + r / STRIP * columns * STRIP + r % STRIP;
    if (w->kind >= FLOAT32) {
      for (u32 c = 0; c < columns; c++) wasm_v128_store(out + c * STRIP, float_weights(w, row + r, column + c));
      continue;
    }
    for (u32 c = 0; c < columns; c += 32) {
      const uint8_t *block = band_of(w, row + r, column + c), *group = block + (row + r) % 16 / 4 * bits * 16;
      const f32 *scale = (f32 *)(block + bits * 64) + (row + r) % 16;
      for (u32 high = 0; high < 2; high++) {
        const Scales s = scales_of(scale, w->kind, high);
        for (u32 v = 0; v < 4; v++, out += 4 * STRIP) {
          v128_t q = codes_at(group, bits, 2 * v + high);
          for (u32 i = 0; i < 4; i++, q = wasm_u32x4_shr(q, 8)) {
            const v128_t whole = wasm_f32x4_convert_i32x4(wasm_v128_and(q, wasm_i32x4_const_splat(255)));
            wasm_v128_store(out + i * STRIP, madd(whole, s.d, s.m));
          }
        }
      }
    }
  }
}

// Row r of four rows' bytes, each as a lane.
#define ROW_OF(q, r) \
  wasm_i8x16_shuffle(q, wasm_i8x16_const_splat(0), 4 * r, 16, 16, 16, 4 * r + 1, 16, 16, 16, 4 * r + 2, 16, 16, 16, 4 * r + 3, 16, 16, 16)
#define LANE(v, r) wasm_i32x4_shuffle(v, v, r, r, r, r)

void weights_down(const PackedMatrix *w, u32 row, u32 rows, u32 column, f32 *to) {
  const u32 bits = bits_of(w->kind), strip = rows * STRIP;
  for (u32 p = 0; p < rows; p += 4) {
    // Rows that pad the last four are not stored.
    const u32 some = min_u(4, rows - p);
    const uint8_t *block = band_of(w, row + p, column), *group = block + (row + p) % 16 / 4 * bits * 16;
    const f32 *scale = (f32 *)(block + bits * 64) + (row + p) % 16;
    for (u32 four = 0; four < 8; four++) {
      f32 *out = to + four / 2 * strip + p * STRIP + four % 2 * 4;
      v128_t values[4];
      if (w->kind >= FLOAT32) {
        for (u32 i = 0; i < 4; i++) values[i] = float_weights(w, row + p, column + 4 * four + i);
        transpose4(values);
      } else {
        const u32 high = four / 4;
        const Scales s = scales_of(scale, w->kind, high);
        const v128_t q = codes_at(group, bits, four % 4 * 2 + high);
#define VALUES(r) values[r] = madd(wasm_f32x4_convert_i32x4(ROW_OF(q, r)), LANE(s.d, r), LANE(s.m, r));
        VALUES(0) VALUES(1) VALUES(2) VALUES(3)
#undef VALUES
      }
      for (u32 r = 0; r < some; r++) wasm_v128_store(out + r * STRIP, values[r]);
    }
  }
}

// A tile of W: DEPTH of the summed dimension, WIDTH of the output dimension. As floats it takes 32 KiB.
enum { DEPTH = 256, WIDTH = 32, BLOCK_ROWS = 128 };

// Pieces of work are blocks of about BLOCK_ROWS rows by WIDTH columns of the result. With more rows, less of W would be
// converted, but the second-level cache must hold them.
typedef struct { u32 rows, blocks; } Blocks;
INLINE Blocks blocks_of(u32 m) {
  const u32 blocks = (m + BLOCK_ROWS - 1) / BLOCK_ROWS, rows = ((m + blocks - 1) / blocks + 3) / 4 * 4;
  return (Blocks){rows, (m + rows - 1) / rows};
}

// y = x W[first : first + n]^T + bias.  a: matrix, first, n, x, y, bias of row `first` or 0; 13: scratch
void train_linear(const Op *op, const Context *c) {
  const PackedMatrix *w = at(op->a[0]);
  const u32 first = op->a[1], n = op->a[2], k = w->columns;
  const f32 *x = at(op->a[3]), *bias = at(op->a[5]);
  f32 *y = at(op->a[4]), *tile = scratch_of(op, c);
  const Blocks b = blocks_of(c->m);
  for (Work work = work_of(c, b.blocks * ((n + WIDTH - 1) / WIDTH), 1); next_piece(&work);) {
    const u32 m = work.begin % b.blocks * b.rows, rows = min_u(b.rows, c->m - m);
    const u32 column = work.begin / b.blocks * WIDTH, columns = min_u(WIDTH, n - column);
    f32 *to = y + m * n + column;
    for (u32 p = 0; p < k; p += DEPTH) {
      const u32 depth = min_u(DEPTH, k - p);
      weights_across(w, first + column, columns, p, depth, tile);
      product(rows, columns, depth, by_rows(x + m * k + p, k), strips(tile, depth), p ? to : 0, 1, to, n);
    }
    if (!bias) continue;
    for (u32 i = 0; i < rows; i++)
      for (u32 j = 0; j < columns; j++) to[i * n + j] += bias[column + j];
  }
}

// out = plus + dy W[first : first + n].  a: matrix, first, n, dy, out, plus or 0; 13: scratch
void linear_gradient(const Op *op, const Context *c) {
  const PackedMatrix *w = at(op->a[0]);
  const u32 first = op->a[1], n = op->a[2], k = w->columns;
  const f32 *dy = at(op->a[3]), *plus = at(op->a[5]);
  f32 *out = at(op->a[4]), *tile = scratch_of(op, c);
  const Blocks b = blocks_of(c->m);
  for (Work work = work_of(c, b.blocks * ((k + WIDTH - 1) / WIDTH), 1); next_piece(&work);) {
    const u32 m = work.begin % b.blocks * b.rows, rows = min_u(b.rows, c->m - m);
    const u32 column = work.begin / b.blocks * WIDTH, columns = min_u(WIDTH, k - column);
    f32 *to = out + m * k + column;
    for (u32 p = 0; p < n; p += DEPTH) {
      const u32 depth = min_u(DEPTH, n - p);
      weights_down(w, first + p, depth, column, tile);
      product(rows, columns, depth, by_rows(dy + m * n + p, n), strips(tile, depth), p ? to : plus ? plus + m * k + column : 0, 1,
              to, k);
    }
  }
}
