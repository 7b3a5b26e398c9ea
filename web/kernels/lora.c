// h = A x of LoRA's small matrices (lora.h), from activations that `quantize` has prepared.
#include "activations.h"
#include "lora.h"

// Blocks first .. last - 1 of row m of x as 16-bit numbers, and for each what a 1 is worth.
static void whole_blocks(const Activations *x, u32 m, u32 first, u32 last, int16_t *q, f32 *s) {
  const u32 blocks = x->columns / 32;
  if (!x->limbs) {
    const f32 *in = x->x + m * x->columns;
    for (u32 b = first; b < last; b++) {
      const f32 scale = abs_max_of(in + 32 * b, 32) / LORA_X;
      const v128_t inverse = wasm_f32x4_splat(scale > 0 ? 1 / scale : 0);
      for (u32 i = 32 * b; i < 32 * b + 32; i += 8)
        wasm_v128_store(q + i, wasm_i16x8_narrow_i32x4(whole4(load(in + i), inverse), whole4(load(in + i + 4), inverse)));
      s[b] = scale;
    }
    return;
  }
  const u32 limbs = x->limbs, lanes = x->lanes, tile = m / lanes * lanes, lane = m % lanes;
  const uint8_t *row = x->q + tile * x->columns * limbs + lane * 32 * limbs;
  const f32 *scales = x->s + tile * blocks + lane;
  for (u32 b = first; b < last; b++) {
    const uint8_t *in = row + b * 32 * limbs * lanes;
    for (u32 i = 0; i < 32; i += 8) {
      v128_t whole = wasm_i16x8_load8x8(in + i);
      if (limbs == PRECISE) whole = wasm_i16x8_add(wasm_i16x8_shl(whole, 7), wasm_i16x8_load8x8(in + 32 + i));
      wasm_v128_store(q + 32 * b + i, whole);
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

// The ranks of each part, from h as floats, to 16 bits.
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

// What blocks first .. last - 1 of row m of x add to h. q and s: room for the row as 16-bit numbers.
static void add_up(const Lora *lora, const Activations *x, u32 m, u32 first, u32 last, int16_t *q, f32 *s, f32 *h) {
  whole_blocks(x, m, first, last, q, s);
  for (u32 g = 0; g < lora->groups; g++) wasm_v128_store(h + 4 * g, wasm_f32x4_const_splat(0));
  const uint8_t *a = (uint8_t *)lora + lora->a + first * lora->groups * 272;
  for (u32 b = first; b < last; b++) {
    const v128_t scale = splat4(s + b);
    u32 g = 0;
    for (; g + 2 <= lora->groups; g += 2, a += 544) add_block(2, a, q + 32 * b, scale, h + 4 * g);
    if (g < lora->groups) add_block(1, a, q + 32 * b, scale, h + 4 * g), a += 272;
  }
}

// A x of one row: each worker makes some shares for all. Waiting at a barrier would cost more than it saves, so a worker
// looks for the others' shares, which are made at the same time, and makes those itself that are not there soon (their
// worker's core may be taken). The shares, and so the sums, are the same for any number of workers.
static void share_row(const Lora *lora, const Context *c, const Activations *x, LoraShare *shares, int16_t *q, f32 *s, f32 *h) {
  enum { PATIENCE = 1000 };
  const u32 blocks = x->columns / 32, phase = CONTROL->generation + 1;  // no other phase of this memory has its number
  const u32 mine = LORA_SHARES * c->worker / c->workers, others = LORA_SHARES * (c->worker + 1) / c->workers;
  for (u32 i = mine; i < others; i++) {
    add_up(lora, x, 0, blocks * i / LORA_SHARES, blocks * (i + 1) / LORA_SHARES, q, s, shares[i].h);
    __atomic_store_n(&shares[i].phase, phase, __ATOMIC_SEQ_CST);
  }
  for (u32 g = 0; g < lora->groups; g++) wasm_v128_store(h + 4 * g, wasm_f32x4_const_splat(0));
  for (u32 i = 0; i < LORA_SHARES; i++) {
    f32 own[LORA_PARTS * LORA_RANK], *share = shares[i].h;
    u32 looked = 0;
    while (__atomic_load_n(&shares[i].phase, __ATOMIC_SEQ_CST) != phase && looked < PATIENCE) looked++;
    if (looked == PATIENCE) {
      add_up(lora, x, 0, blocks * i / LORA_SHARES, blocks * (i + 1) / LORA_SHARES, q, s, own);
      share = own;
    }
    for (u32 g = 0; g < lora->groups; g++) wasm_v128_store(h + 4 * g, wasm_f32x4_add(load(h + 4 * g), load(share + 4 * g)));
  }
}

// A x of the rows that this worker has prepared just before (`quantize` gives each worker the same ones), so that the
// workers need not wait in between. If there is one row, every worker has its own h.
// a: columns, activations of one row, bytes from worker to worker, activations of many rows, rows these have room for,
//    mode, a row of floats for each worker, LoraSets, where in each set the Lora of these linears is
void lora_down(const Op *op, const Context *c) {
  const Lora *lora = lora_of(op->a[7], op->a[8], c);
  if (!lora->groups) return;
  const u32 columns = op->a[0], single = c->m == 1;
  const u32 address = single ? op->a[1] + c->worker * op->a[2] : op->a[3];
  const Activations x = activations(address, columns, single ? 1 : op->a[4], op->a[5]);
  int16_t *q = at(op->a[6] + c->worker * columns * 4);
  f32 *s = (f32 *)(q + columns), h[LORA_PARTS * LORA_RANK];
  LoraRow *rows = lora_rows(op->a[7], c);
  if (single) {
    share_row(lora, c, &x, ((LoraSets *)at(op->a[7]))->shares, q, s, h);
    store_row(lora, h, rows);
    return;
  }
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    add_up(lora, &x, m, 0, columns / 32, q, s, h);
    store_row(lora, h, rows + m);
  }
}
