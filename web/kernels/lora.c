// h = A x for LoRA's small matrices (lora.h), from activations prepared by `quantize`.
#include "activations.h"
#include "lora.h"

// Row m of x as 16-bit numbers, with a scale for each block of 32.
static void whole_row(const Activations *x, u32 m, int16_t *q, f32 *s) {
  const u32 blocks = (x->columns + 31) / 32;
  if (!x->limbs) {
    const f32 *in = x->x + m * x->columns;
    f32 last[32];
    for (u32 b = 0; b < blocks; b++, in += 32, q += 32) {
      const u32 count = min_u(32, x->columns - 32 * b);
      if (count < 32) {  // do not read into the next row
        for (u32 i = 0; i < 32; i++) last[i] = i < count ? in[i] : 0;
        in = last;
      }
      const f32 scale = abs_max_of(in, 32) / LORA_X;
      const v128_t inverse = wasm_f32x4_splat(scale > 0 ? 1 / scale : 0);
      for (u32 i = 0; i < 32; i += 8)
        wasm_v128_store(q + i, wasm_i16x8_narrow_i32x4(whole4(load(in + i), inverse), whole4(load(in + i + 4), inverse)));
      s[b] = scale;
    }
    return;
  }
  const u32 limbs = x->limbs, lanes = x->lanes, tile = m / lanes * lanes, lane = m % lanes;
  const uint8_t *in = x->q + tile * x->columns * limbs + lane * 32 * limbs;
  const f32 *scales = x->s + tile * blocks + lane;
  for (u32 b = 0; b < blocks; b++, in += 32 * limbs * lanes, q += 32) {
    for (u32 i = 0; i < 32; i += 8) {
      v128_t whole = wasm_i16x8_load8x8(in + i);
      if (limbs == PRECISE) whole = wasm_i16x8_add(wasm_i16x8_shl(whole, 7), wasm_i16x8_load8x8(in + 32 + i));
      wasm_v128_store(q + i, whole);
    }
    s[b] = scales[b * lanes];
  }
}

// Adds the products of a block of x with GROUPS groups of A to the ranks' sums.
INLINE void add_block(const u32 GROUPS, const uint8_t *a, const int16_t *q, v128_t scale, f32 *h) {
  v128_t sums[2];
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++) sums[g] = wasm_i32x4_const_splat(0);
#pragma unroll
  for (u32 i = 0; i < 16; i++) {
    const v128_t pair = splat4(q + 2 * i);
#pragma unroll
    for (u32 g = 0; g < GROUPS; g++)
      sums[g] = wasm_i32x4_add(sums[g], wasm_i32x4_dot_i16x8(load(a + g * 272 + 16 + i * 16), pair));
  }
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++) {
    const v128_t worth = wasm_f32x4_mul(load(a + g * 272), scale);
    wasm_v128_store(h + 4 * g, madd(wasm_f32x4_convert_i32x4(sums[g]), worth, load(h + 4 * g)));
  }
}

// Converts the ranks of each part, from h as floats, to 16 bits.
static void store_row(const Lora *lora, const f32 *h, LoraRow *out) {
  for (u32 p = 0; p < LORA_PARTS; p++) {
    const u32 ranks = lora->parts[p].pairs * 2;
    const f32 scale = abs_max_of(h, ranks) / LORA_H;
    const v128_t inverse = wasm_f32x4_splat(scale > 0 ? 1 / scale : 0);
    for (u32 i = 0; i < ranks; i += 4) {
      const v128_t whole = whole4(load(h + i), inverse);
      wasm_v128_store64_lane(out->q[p] + i, wasm_i16x8_narrow_i32x4(whole, whole), 0);
    }
    out->scale[p] = scale;
    h += ranks;
  }
}

// A x for the rows that this worker has just prepared (`quantize` gives each worker the same ones), so that the workers
// need not wait in between. If there is one row, every worker computes its own h.
// a: columns, activations of one row, bytes from worker to worker, activations of many rows, rows these have room for,
//    mode, a row of floats for each worker, LoraSets, the offset of these linears' Lora in each set
void lora_down(const Op *op, const Context *c) {
  const Lora *lora = lora_of(op->a[7], op->a[8], c);
  if (!lora->groups) return;
  const u32 columns = op->a[0], blocks = (columns + 31) / 32, single = c->m == 1;
  const u32 address = single ? op->a[1] + c->worker * op->a[2] : op->a[3];
  const Activations x = activations(address, columns, single ? 1 : op->a[4], op->a[5]);
  int16_t *q = at(op->a[6] + c->worker * blocks * 128);
  f32 *s = (f32 *)(q + blocks * 32), h[LORA_PARTS * LORA_RANK];
  for (u32 m = single ? 0 : c->worker; m < c->m; m += single ? 1 : c->workers) {
    whole_row(&x, m, q, s);
    for (u32 g = 0; g < lora->groups; g++) wasm_v128_store(h + 4 * g, wasm_f32x4_const_splat(0));
    const uint8_t *a = (uint8_t *)lora + lora->a;
    for (u32 b = 0; b < blocks; b++) {
      const v128_t scale = splat4(s + b);
      u32 g = 0;
      for (; g + 2 <= lora->groups; g += 2, a += 544) add_block(2, a, q + 32 * b, scale, h + 4 * g);
      if (g < lora->groups) add_block(1, a, q + 32 * b, scale, h + 4 * g), a += 272;
    }
    store_row(lora, h, lora_rows(op->a[7], c) + m);
  }
}
