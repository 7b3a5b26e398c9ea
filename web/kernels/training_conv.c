// The gated convolution within a pack (short_conv.c), and its gradient. Each worker has channels of its own.
#include "training.h"

// What both read: x, weights [4 channels][tap][channel], and the pack's rows.
typedef struct { u32 width, taps, begin, end, prefix; const f32 *x, *weight; const u32 *starts; } Conv;

// a: x, weights, width (a multiple of 4), taps, pack
static Conv conv_of(const Op *op, const Context *c) {
  const u32 width = op->a[2], quads = width / 4;
  const Pack *pack = at(op->a[4]);
  return (Conv){width, op->a[3], quads * c->worker / c->workers * 4, quads * (c->worker + 1) / c->workers * 4, pack->prefix,
                at(op->a[0]), at(op->a[1]), (u32 *)(pack + 1)};
}

// The row at a distance before row m in its sequence, which continues the prefix; below 0 if there is none.
INLINE i32 before(const Conv *k, u32 m, u32 distance) {
  const i32 row = (i32)m - (i32)distance, start = (i32)k->starts[m];
  return m >= k->prefix && row < start ? row - start + (i32)k->prefix : row;
}

// z = b * u of 4 channels of a row.
INLINE v128_t gated4(const Conv *k, u32 row, u32 i) {
  const f32 *x = k->x + row * 3 * k->width + i;
  return wasm_f32x4_mul(load(x), load(x + 2 * k->width));
}

// The sum over the taps of row m.
INLINE v128_t convolved4(const Conv *k, u32 m, u32 i) {
  v128_t sum = wasm_f32x4_const_splat(0);
  for (u32 j = 0; j < k->taps; j++) {
    const i32 row = before(k, m, k->taps - 1 - j);
    if (row >= 0) sum = madd(load(k->weight + i * k->taps + 4 * j), gated4(k, (u32)row, i), sum);
  }
  return sum;
}

// y = c * conv(b * u).  a: those of conv_of, y
void packed_conv(const Op *op, const Context *c) {
  const Conv k = conv_of(op, c);
  for (u32 m = 0; m < c->m; m++)
    for (u32 i = k.begin; i < k.end; i += 4) {
      const v128_t gate = load(k.x + m * 3 * k.width + k.width + i);
      wasm_v128_store((f32 *)at(op->a[5]) + m * k.width + i, wasm_f32x4_mul(gate, convolved4(&k, m, i)));
    }
}

// The gradient dx of b, c and u: dc = dy * conv(b * u), db = dz * u, du = dz * b. dz of a row is the sum over the rows that
// read it: it is collected where db comes.  a: those of conv_of, dy, dx
void conv_gradient(const Op *op, const Context *c) {
  const Conv k = conv_of(op, c);
  f32 *dx = at(op->a[6]);
  for (u32 m = 0; m < c->m; m++)
    for (u32 i = k.begin; i < k.end; i += 4) wasm_v128_store(dx + m * 3 * k.width + i, wasm_f32x4_const_splat(0));
  for (u32 m = 0; m < c->m; m++)
    for (u32 i = k.begin; i < k.end; i += 4) {
      const v128_t dy = load((f32 *)at(op->a[5]) + m * k.width + i);
      const v128_t slope = wasm_f32x4_mul(dy, load(k.x + m * 3 * k.width + k.width + i));
      wasm_v128_store(dx + m * 3 * k.width + k.width + i, wasm_f32x4_mul(dy, convolved4(&k, m, i)));
      for (u32 j = 0; j < k.taps; j++) {
        const i32 row = before(&k, m, k.taps - 1 - j);
        if (row < 0) continue;
        f32 *dz = dx + (u32)row * 3 * k.width + i;
        wasm_v128_store(dz, madd(load(k.weight + i * k.taps + 4 * j), slope, load(dz)));
      }
    }
  for (u32 m = 0; m < c->m; m++)
    for (u32 i = k.begin; i < k.end; i += 4) {
      const f32 *x = k.x + m * 3 * k.width + i;
      f32 *db = dx + m * 3 * k.width + i;
      const v128_t dz = load(db);
      wasm_v128_store(db, wasm_f32x4_mul(dz, load(x + 2 * k.width)));
      wasm_v128_store(db + 2 * k.width, wasm_f32x4_mul(dz, load(x)));
    }
}
