// Gradients of row-wise operations: norms, rotations, gates, caps. Each row is processed by one worker.
#include "training.h"

// With r = 1 / sqrt(mean(x^2) + eps) and g = dy * weight: out = plus + r g - r^3 x mean(g x), for each head of a row.
// a: dy, x, weight, eps, out, plus or 0, heads, size of a head
void norm_gradient(const Op *op, const Context *c) {
  const u32 heads = op->a[6], size = op->a[7], whole = size & ~3u;
  const f32 *weight = at(op->a[2]);
  for (u32 m = c->worker; m < c->m; m += c->workers)
    for (u32 h = m * heads; h < (m + 1) * heads; h++) {
      const f32 *dy = (f32 *)at(op->a[0]) + h * size, *x = (f32 *)at(op->a[1]) + h * size;
      const f32 *plus = op->a[5] ? (f32 *)at(op->a[5]) + h * size : 0;
      f32 *out = (f32 *)at(op->a[4]) + h * size;
      v128_t squares = wasm_f32x4_const_splat(0), along = squares;
      for (u32 i = 0; i < whole; i += 4) {
        squares = madd(load(x + i), load(x + i), squares);
        along = madd(wasm_f32x4_mul(load(dy + i), load(weight + i)), load(x + i), along);
      }
      f32 square = sum4(squares), product = sum4(along);
      for (u32 i = whole; i < size; i++) square += x[i] * x[i], product += dy[i] * weight[i] * x[i];
      const f32 r = 1 / __builtin_sqrtf(square / (f32)size + real(op->a[3])), slope = -r * r * r * product / (f32)size;
      const v128_t scale = wasm_f32x4_splat(r), back = wasm_f32x4_splat(slope);
      for (u32 i = whole; i < size; i++) out[i] = dy[i] * weight[i] * r + x[i] * slope + (plus ? plus[i] : 0);
      for (u32 i = 0; i < whole; i += 4) {
        v128_t sum = wasm_f32x4_mul(wasm_f32x4_mul(load(dy + i), load(weight + i)), scale);
        sum = madd(load(x + i), back, sum);
        if (plus) sum = wasm_f32x4_add(sum, load(plus + i));
        wasm_v128_store(out + i, sum);
      }
    }
}

// out[m, h] = dy[m, h], rotated back.  a: dy, out, heads, size of a head, angles, pairs that rotate, 1 if these are neighbours
void rope_gradient(const Op *op, const Context *c) {
  const u32 heads = op->a[2], size = op->a[3], pairs = op->a[5], neighbours = op->a[6];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *dy = (f32 *)at(op->a[0]) + m * heads * size;
    const f32 *angles = (f32 *)at(op->a[4]) + c->state->rows[m].position * pairs * 2;
    f32 *out = (f32 *)at(op->a[1]) + m * heads * size;
    for (u32 h = 0; h < heads; h++, dy += size, out += size) {
      for (u32 i = 0; i < pairs; i++) {
        const f32 cos = angles[2 * i], sin = angles[2 * i + 1];
        const u32 a = neighbours ? 2 * i : i, b = neighbours ? 2 * i + 1 : i + pairs;
        out[a] = dy[a] * cos + dy[b] * sin;
        out[b] = dy[b] * cos - dy[a] * sin;
      }
      for (u32 i = 2 * pairs; i < size; i++) out[i] = dy[i];
    }
  }
}

// act(x) = x s with s = 1 / (1 + e^-z): z = x for silu, z = 2 sqrt(2 / pi) (x + 0.044715 x^3) for gelu's approximation.
// act'(x) = s + x s (1 - s) z'
typedef struct { v128_t value, slope; } Activated;
INLINE Activated activated(u32 activation, v128_t x) {
  const v128_t one = wasm_f32x4_const_splat(1), square = wasm_f32x4_mul(x, x);
  v128_t z = x, slope = one;
  if (activation == GELU) {
    const v128_t twice = wasm_f32x4_const_splat(1.5957691216057308f);
    z = wasm_f32x4_mul(wasm_f32x4_mul(x, twice), madd(square, wasm_f32x4_const_splat(0.044715f), one));
    slope = wasm_f32x4_mul(twice, madd(square, wasm_f32x4_const_splat(0.134145f), one));
  }
  const v128_t e = exp4(wasm_f32x4_neg(z)), s = wasm_f32x4_div(one, wasm_f32x4_add(one, e));
  const v128_t value = wasm_f32x4_mul(x, s);
  // 1 - s, without cancellation near 1
  const v128_t rest = wasm_f32x4_mul(e, s);
  return (Activated){value, madd(wasm_f32x4_mul(value, rest), slope, s)};
}

// dgate = dy * up * activation'(gate), dup = dy * activation(gate).  a: dy, gate, up, dgate, dup, n, activation
void glu_gradient(const Op *op, const Context *c) {
  const u32 n = op->a[5];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *dy = (f32 *)at(op->a[0]) + m * n, *gate = (f32 *)at(op->a[1]) + m * n, *up = (f32 *)at(op->a[2]) + m * n;
    f32 *dgate = (f32 *)at(op->a[3]) + m * n, *dup = (f32 *)at(op->a[4]) + m * n;
    for (u32 i = 0; i < n; i += 4) {
      const Activated a = activated(op->a[6], load(gate + i));
      const v128_t slope = wasm_f32x4_mul(wasm_f32x4_mul(load(dy + i), load(up + i)), a.slope);
      store_some(dgate + i, slope, n - i);
      store_some(dup + i, wasm_f32x4_mul(load(dy + i), a.value), n - i);
    }
  }
}

// out = plus + dy (1 - (y / cap)^2).  a: dy, y, cap, out, plus or 0, width
void soft_cap_gradient(const Op *op, const Context *c) {
  const u32 n = op->a[5];
  const v128_t one = wasm_f32x4_const_splat(1), inverse = wasm_f32x4_splat(1 / real(op->a[2]));
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *dy = (f32 *)at(op->a[0]) + m * n, *y = (f32 *)at(op->a[1]) + m * n;
    const f32 *plus = op->a[4] ? (f32 *)at(op->a[4]) + m * n : 0;
    f32 *out = (f32 *)at(op->a[3]) + m * n;
    for (u32 i = 0; i < n; i += 4) {
      const v128_t part = wasm_f32x4_mul(load(y + i), inverse);
      v128_t sum = wasm_f32x4_mul(load(dy + i), wasm_f32x4_sub(one, wasm_f32x4_mul(part, part)));
      if (plus) sum = wasm_f32x4_add(sum, load(plus + i));
      store_some(out + i, sum, n - i);
    }
  }
}
