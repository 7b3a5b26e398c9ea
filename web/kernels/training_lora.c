// LoRA pairs in training: y += scale (x a^T) b^T, and the gradients of a, b and the values. a is (rank, k), b (n, rank). A
// row of u = x a^T, and of its gradient, takes `wide` floats: the rank, padded with zeros to whole vectors.
#include "training.h"

enum { ROWS = 32, WIDTH = 64, DEPTH = 256 };
INLINE u32 pieces(u32 total, u32 size) { return (total + size - 1) / size; }

// u = x a^T.  a: x, a, u, k, rank, wide; 13: scratch
void train_lora_down(const Op *op, const Context *c) {
  const u32 k = op->a[3], rank = op->a[4], wide = op->a[5];
  const f32 *x = at(op->a[0]), *a = at(op->a[1]);
  f32 *u = at(op->a[2]), *tile = scratch_of(op, c);
  for (Work work = work_of(c, pieces(c->m, 2 * ROWS), 1); next_piece(&work);) {
    const u32 m = work.begin * 2 * ROWS, rows = min_u(2 * ROWS, c->m - m);
    for (u32 p = 0; p < k; p += DEPTH) {
      const u32 depth = min_u(DEPTH, k - p);
      transposed_strips(a + p, k, rank, depth, tile);
      product(rows, wide, depth, by_rows(x + m * k + p, k), strips(tile, depth), p ? u + m * wide : 0, 1, u + m * wide, wide);
    }
  }
}

// y += scale * u b^T for n rows of b.  a: u, b, y, n, rank, wide, scale; 13: scratch
void train_lora_up(const Op *op, const Context *c) {
  const u32 n = op->a[3], rank = op->a[4], wide = op->a[5];
  const f32 *u = at(op->a[0]), *b = at(op->a[1]);
  f32 *y = at(op->a[2]), *tile = scratch_of(op, c);
  for (Work work = work_of(c, pieces(n, WIDTH), 1); next_piece(&work);) {
    const u32 first = work.begin * WIDTH, columns = min_u(WIDTH, n - first);
    transposed_strips(b + first * rank, rank, columns, rank, tile);
    product(c->m, columns, rank, by_rows(u, wide), strips(tile, rank), y + first, real(op->a[6]), y + first, n);
  }
}

// du = plus + scale * dy b, and the gradient of b grows by scale * dy^T u.
// a: dy, u, b, gradient of b, du, plus or 0, n, rank, wide, scale
void lora_up_gradient(const Op *op, const Context *c) {
  const f32 *dy = at(op->a[0]), *u = at(op->a[1]), *b = at(op->a[2]), *plus = at(op->a[5]);
  f32 *db = at(op->a[3]), *du = at(op->a[4]);
  const u32 n = op->a[6], rank = op->a[7], wide = op->a[8], tall = pieces(c->m, ROWS);
  const f32 scale = real(op->a[9]);
  for (Work work = work_of(c, tall + pieces(n, ROWS), 1); next_piece(&work);) {
    if (work.begin < tall) {
      const u32 m = work.begin * ROWS, rows = min_u(ROWS, c->m - m);
      // b's rows may be shorter than du's: the padding after the rank stays 0.
      for (u32 i = m; i < m + rows; i++)
        for (u32 r = rank; r < wide; r++) du[i * wide + r] = 0;
      product(rows, rank, n, by_rows(dy + m * n, n), plain(b, rank), plus ? plus + m * wide : 0, scale, du + m * wide, wide);
    } else {
      const u32 first = (work.begin - tall) * ROWS;
      f32 *grown = db + first * rank;
      product(min_u(ROWS, n - first), rank, c->m, by_columns(dy + first, n), plain(u, wide), grown, scale, grown, rank);
    }
  }
}

// out = plus + du a, unless out is 0, and the gradient of a grows by du^T x.
// a: du, x, a, gradient of a, out or 0, plus or 0, k, rank, wide
void lora_down_gradient(const Op *op, const Context *c) {
  const f32 *du = at(op->a[0]), *x = at(op->a[1]), *a = at(op->a[2]), *plus = at(op->a[5]);
  f32 *da = at(op->a[3]), *out = at(op->a[4]);
  const u32 k = op->a[6], rank = op->a[7], wide = op->a[8], tall = out ? pieces(c->m, ROWS) : 0;
  for (Work work = work_of(c, tall + pieces(k, WIDTH), 1); next_piece(&work);) {
    if (work.begin < tall) {
      const u32 m = work.begin * ROWS;
      product(min_u(ROWS, c->m - m), k, rank, by_rows(du + m * wide, wide), plain(a, k), plus ? plus + m * k : 0, 1, out + m * k, k);
    } else {
      // Some rows at a time, so that they fit the first-level cache.
      const u32 first = (work.begin - tall) * WIDTH;
      for (u32 m = 0; m < c->m; m += DEPTH / 4)
        product(rank, min_u(WIDTH, k - first), min_u(DEPTH / 4, c->m - m), by_columns(du + m * wide, wide),
                plain(x + m * k + first, k), da + first, 1, da + first, k);
    }
  }
}
