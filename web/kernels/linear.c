// y[m, offset + n] = sum_k W[n, k] x[m, k] + bias[n], on activations prepared by `quantize`.
#include "activations.h"
#include "lora.h"

enum { PANEL_BYTES = 16 << 10 };
// The use of the sums: they are added to y, they are gates and ups of an activation (SILU, GELU), or capped.
enum { EPILOGUE_NONE = 0, EPILOGUE_RESIDUAL = 1, EPILOGUE_SILU = SILU, EPILOGUE_GELU = GELU, EPILOGUE_SOFT_CAP = 4 };

// Adds a block of 32 columns, or one half (`part`) of a SPLIT or SIXES block, to the sums of GROUPS groups of 4 rows of W
// and LANES rows of x. The sums of W's codes come first (`add_block`, `add_wide_block`), then its scales.
// bits: of a code; parts: 2 for SPLIT and SIXES; xp: int8 limbs of a value of x; s, t, u: the factors of x in
// `activations.h`.
INLINE void add_scaled(const u32 bits, const u32 parts, const u32 part, const u32 GROUPS, const u32 LANES, const uint8_t *scales,
                       v128_t (*sums)[4], const f32 *s, const f32 *t, const f32 *u, v128_t (*total)[4]) {
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++) {
    const v128_t d = load(scales + part * 64 + g * 16);
#pragma unroll
    for (u32 i = 0; i < LANES; i++) {
      const v128_t whole = wasm_f32x4_convert_i32x4(sums[g][i]);
      if (bits == 6) {  // m = -32 d
        const v128_t columns = part ? wasm_f32x4_sub(splat4(t + i), splat4(u + i)) : splat4(u + i);
        const v128_t centred = madd(whole, splat4(s + i), wasm_f32x4_mul(columns, wasm_f32x4_const_splat(-32)));
        total[g][i] = madd(d, centred, total[g][i]);
        continue;
      }
      const v128_t m = load(scales + (parts == 1 ? 1 : 3 - part) * 64 + g * 16);
      total[g][i] = madd(whole, wasm_f32x4_mul(d, splat4(s + i)), total[g][i]);
      total[g][i] = madd(m, splat4((parts == 2 && part == 0 ? u : t) + i), total[g][i]);
    }
  }
}

// Products of bytes. KEEP forces the compiler to keep the order that needs the fewest registers. Without it, it computes
// one sum after the other and spills the values that they share.
INLINE void add_block(const u32 bits, const u32 parts, const u32 part, const u32 xp, const u32 GROUPS, const u32 LANES,
                      const uint8_t *w, const uint8_t *scales, const uint8_t *q, const f32 *s, const f32 *t, const f32 *u,
                      v128_t (*total)[4]) {
  const u32 HALVES = LANES == 1 && parts == 1 ? xp : 1, planes = bits == 8 ? 2 : 1, width = bits == 8 ? 4 : bits;
  v128_t sums[4][4];
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
    for (u32 i = 0; i < LANES; i++) sums[g][i] = wasm_i32x4_const_splat(0);
  // The planes stay a loop, to keep the code small.
#pragma clang loop unroll(disable)
  for (u32 p = 0; p < planes; p++) {
    // With many rows, the limbs of x are processed one after the other: unpacking codes again costs less than sums in
    // memory.
#pragma unroll
    for (u32 half = 0; half < xp; half += HALVES) {
      Acc acc[2][4][4];
#pragma unroll
      for (u32 step = 0; step < 8 / parts; step++) {
        const u32 k = parts == 2 ? 2 * step + part : step, column = k / 2 * 4 + 16 * (k % 2);
        if (step % STEPS(width) == 0) {
#pragma unroll
          for (u32 h = 0; h < HALVES; h++)
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
              for (u32 i = 0; i < LANES; i++) acc[h][g][i] = acc_zero();
        }
        v128_t codes[4];
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++) codes[g] = codes_at(w + g * bits * 16 + p * 64, width, k);
#pragma unroll
        for (u32 i = 0; i < LANES; i++)
#pragma unroll
          for (u32 h = 0; h < HALVES; h++) {
            const v128_t four = splat4(q + i * 32 * xp + 32 * (half + h) + column);
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
              acc[h][g][i] = codes_dot(four, codes[g], acc[h][g][i]);
              KEEP(acc[h][g][i]);
            }
          }
        if ((step + 1) % STEPS(width) && step + 1 < 8 / parts) continue;
#pragma unroll
        for (u32 h = 0; h < HALVES; h++)
#pragma unroll
          for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
            for (u32 i = 0; i < LANES; i++) {
              // x = 128 * first limb + second limb; q = low plane + 16 * high plane
              const u32 shift = (xp == 2 && half + h == 0 ? 7 : 0) + 4 * p;
              sums[g][i] = wasm_i32x4_add(sums[g][i], wasm_i32x4_shl(codes_rows(acc[h][g][i]), shift));
            }
      }
    }
  }
  add_scaled(bits, parts, part, GROUPS, LANES, scales, sums, s, t, u, total);
}

// The same for both parts, with x in 16 bits.
INLINE void add_wide_block(const u32 bits, const u32 parts, const u32 GROUPS, const u32 LANES, const uint8_t *w,
                           const uint8_t *scales, const int16_t *x, const f32 *s, const f32 *t, const f32 *u, v128_t (*total)[4]) {
#pragma unroll
  for (u32 part = 0; part < parts; part++) {
    v128_t upper[4][4], lower[4][4];  // sums of two columns each of rows 0, 1 and of rows 2, 3
#pragma unroll
    for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
      for (u32 i = 0; i < LANES; i++) upper[g][i] = lower[g][i] = wasm_i32x4_const(0, 0, 0, 0);
#pragma unroll
    for (u32 step = 0; step < 8 / parts; step++) {
      const u32 k = parts == 2 ? 2 * step + part : step, column = k / 2 * 4 + 16 * (k % 2);
#pragma unroll
      for (u32 g = 0; g < GROUPS; g++) {
        const v128_t codes = codes_at(w + g * bits * 16, bits, k);
        const v128_t one = wasm_u16x8_extend_low_u8x16(codes), two = wasm_u16x8_extend_high_u8x16(codes);
#pragma unroll
        for (u32 i = 0; i < LANES; i++) {
          const v128_t four = wasm_v128_load64_splat(x + i * 32 + column);
          upper[g][i] = wasm_i32x4_add(upper[g][i], wasm_i32x4_dot_i16x8(one, four));
          lower[g][i] = wasm_i32x4_add(lower[g][i], wasm_i32x4_dot_i16x8(two, four));
          __asm__ volatile("" : "+r"(upper[g][i]), "+r"(lower[g][i]));
        }
      }
    }
    v128_t sums[4][4];
#pragma unroll
    for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
      for (u32 i = 0; i < LANES; i++)
        sums[g][i] = wasm_i32x4_add(wasm_i32x4_shuffle(upper[g][i], lower[g][i], 0, 2, 4, 6),
                                    wasm_i32x4_shuffle(upper[g][i], lower[g][i], 1, 3, 5, 7));
    add_scaled(bits, parts, part, GROUPS, LANES, scales, sums, s, t, u, total);
  }
}

// Sums for GROUPS groups of 4 rows, from group `first` of a band on, and LANES rows of x from row m on, which are a tile
// of `activations.h` or lie in one.
INLINE void tile(const u32 kind, const u32 xp, const u32 GROUPS, const u32 LANES, const uint8_t *w, u32 first, u32 blocks,
                 const Activations *x, u32 m, v128_t *out) {
  const u32 bits = bits_of(kind), parts = is_split(kind) ? 2 : 1;
  const u32 block_bytes = block_bytes_of(kind), stride = LANES == 4 ? 4 : x->lanes;
  const uint8_t *scales = w + bits * 64 + first * 16, *q = x->q + (m / stride * blocks * stride + m % stride) * 32 * xp;
  const u32 at_scales = m / stride * blocks * stride + m % stride;
  const f32 *s = x->s + at_scales, *t = x->t + at_scales, *u = x->u + at_scales;
  const int16_t *wide = x->wide + at_scales * 32;
  w += first * bits * 16;
  v128_t total[4][4];
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
    for (u32 i = 0; i < LANES; i++) total[g][i] = wasm_f32x4_const_splat(0);
  for (u32 b = 0; b < blocks; b++) {
    if (xp == PRECISE && WIDE(bits)) {
      add_wide_block(bits, parts, GROUPS, LANES, w, scales, wide, s, t, u, total);
    } else {
#pragma unroll
      for (u32 part = 0; part < parts; part++)
        add_block(bits, parts, part, xp, GROUPS, LANES, w, scales, q, s, t, u, total);
    }
    w += block_bytes, scales += block_bytes, q += stride * 32 * xp, wide += stride * 32, s += stride, t += stride, u += stride;
  }
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
    for (u32 i = 0; i < LANES; i++) out[g * LANES + i] = total[g][i];
}

// The same for float weights.
static void float_tile(const PackedMatrix *w, u32 group, u32 groups, u32 lanes, const f32 *x, v128_t *out) {
  const u32 k = w->columns;
  for (u32 g = 0; g < groups; g++)
    for (u32 i = 0; i < lanes; i++) {
      const f32 *in = x + i * k;
      v128_t sum = wasm_f32x4_const_splat(0);
      if (w->kind == FLOAT32) {
        const f32 *values = (f32 *)at(w->data) + (group + g) * 4 * k;
        for (u32 c = 0; c < k; c++) sum = madd(load(values + 4 * c), splat4(in + c), sum);
      } else {
        const uint16_t *values = (uint16_t *)at(w->data) + (group + g) * 4 * k;
        for (u32 c = 0; c < k; c++) {
          const v128_t halves = wasm_v128_load64_zero(values + 4 * c);
          const v128_t wide = w->kind == FLOAT16 ? halves4(halves) : wasm_i32x4_shl(wasm_u32x4_extend_low_u16x8(halves), 16);
          sum = madd(wide, splat4(in + c), sum);
        }
      }
      out[g * lanes + i] = sum;
    }
}

// The number of groups of 4 rows of W in a tile with `lanes` rows of x.
INLINE u32 groups_of(const u32 kind, const u32 limbs, const u32 lanes) {
  if (is_split(kind)) return 1;
  return limbs == PRECISE && kind < FLOAT32 && WIDE(bits_of(kind)) ? 4 / lanes : lanes == 4 ? 2 : 4;
}

// A separate function for each shape, so that none takes the others' registers. The shapes were chosen by measuring
// (docs/decisions/0016): four groups for one or two rows of x, two for four.
#define KINDS(name, xp, L) \
  name(NIBBLES, xp, L) name(FIVES, xp, L) name(EIGHTS, xp, L) name(SPLIT, xp, L) name(SIXES, xp, L)
#define TILES(name) \
  KINDS(name, 1, 1) KINDS(name, 2, 1) KINDS(name, 1, 4) KINDS(name, 2, 4) \
  name(NIBBLES, 1, 2) name(FIVES, 1, 2) name(EIGHTS, 1, 2) name(NIBBLES, 2, 2) name(FIVES, 2, 2) name(EIGHTS, 2, 2)
#define TILE(kind, xp, L) \
  static __attribute__((noinline)) void tile_##kind##_##xp##_##L(const uint8_t *w, u32 first, u32 blocks, const Activations *x, \
                                                                 u32 m, v128_t *out) { \
    tile(kind, xp, groups_of(kind, xp, L), L, w, first, blocks, x, m, out); \
  }
TILES(TILE)
#undef TILE

// Multiplies the groups of W from `group` on by 1, 2 or 4 rows of x from row m on.
static void any_tile(const PackedMatrix *w, u32 group, u32 groups, const Activations *x, u32 m, u32 lanes, v128_t *out) {
  if (w->kind >= FLOAT32) { float_tile(w, group, groups, lanes, x->x + m * w->columns, out); return; }
  const u32 blocks = w->columns / 32;
  const uint8_t *data = (uint8_t *)at(w->data) + group / 4 * blocks * block_bytes_of(w->kind);
  switch (w->kind << 8 | x->limbs << 4 | lanes) {
#define TILE(kind, xp, L) case kind << 8 | xp << 4 | L: tile_##kind##_##xp##_##L(data, group % 4, blocks, x, m, out); break;
    TILES(TILE)
#undef TILE
  }
}

// a: matrix, y, stride, offset, epilogue, activations of one row (each worker's own), bytes from worker to worker,
//    activations of many rows (shared), the number of rows these have room for, mode, biases of the matrix's rows or 0,
//    the soft-cap; adapted: LoraSets, the offset of these linears' Lora in each set
INLINE void multiply(const Op *op, const Context *c, const u32 adapted) {
  const PackedMatrix *w = at(op->a[0]);
  f32 *y = at(op->a[1]);
  const u32 stride = op->a[2], offset = op->a[3], epilogue = op->a[4], mode = op->a[9];
  const u32 address = c->m == 1 ? op->a[5] + c->worker * op->a[6] : op->a[7];
  const Activations x = activations(address, w->columns, c->m == 1 ? 1 : op->a[8], mode);
  const f32 *bias = at(op->a[10]), cap = real(op->a[11]);
  const Lora *lora = adapted ? lora_of(op->a[12], op->a[13], c) : 0;
  const LoraRow *h = adapted ? lora_rows(op->a[12], c) : 0;
  // Gates are the first half of W's rows, whole bands of them, ups the second.
  const u32 gated = epilogue == EPILOGUE_SILU || epilogue == EPILOGUE_GELU;
  const u32 n = gated ? w->rows / 2 : w->rows, bands = (n + 15) / 16;
  // A panel of W's rows stays in the first-level cache while all rows of x are multiplied by it.
  const u32 panel = max_u(1, PANEL_BYTES / (w->columns * 16));
  // About eight pieces for each worker.
  for (Work work = work_of(c, bands, max_u(1, bands / (c->workers * 8))); next_piece(&work);) {
    for (u32 first = work.begin; first < work.end; first += panel) {
      const u32 last = min_u(work.end, first + panel);
      for (u32 m = 0, lanes; m < c->m; m += lanes) {
        lanes = c->m - m >= 4 ? 4 : c->m - m >= 2 && !is_split(w->kind) ? 2 : 1;
        const u32 groups = groups_of(w->kind, x.limbs, lanes);
        for (u32 g = first * 4; g < last * 4; g += groups) {
          v128_t out[8], ups[8];
          any_tile(w, g, groups, &x, m, lanes, out);
          if (gated) any_tile(w, g + bands * 4, groups, &x, m, lanes, ups);
          if (adapted) lora_add(lora, h + m, offset + 4 * g, groups, lanes, out);
          if (adapted && gated) lora_add(lora, h + m, n + 4 * g, groups, lanes, ups);
          for (u32 i = 0; i < groups * lanes; i++) {
            const u32 row = (g + i / lanes) * 4;
            f32 *to = y + (m + i % lanes) * stride + offset + row;
            v128_t sum = out[i];
            if (bias) sum = wasm_f32x4_add(sum, load(bias + row));
            if (gated) {
              const v128_t up = bias ? wasm_f32x4_add(ups[i], load(bias + n + row)) : ups[i];
              sum = wasm_f32x4_mul(activate(epilogue, sum), up);
            }
            if (epilogue == EPILOGUE_SOFT_CAP) sum = soft_cap4(sum, cap);
            if (row + 4 <= n) {
              if (epilogue == EPILOGUE_RESIDUAL) sum = wasm_f32x4_add(sum, load(to));
              wasm_v128_store(to, sum);
            } else {
              f32 lanes_of[4];
              wasm_v128_store(lanes_of, sum);
              for (u32 r = 0; row + r < n; r++) to[r] = epilogue == EPILOGUE_RESIDUAL ? to[r] + lanes_of[r] : lanes_of[r];
            }
          }
        }
      }
    }
  }
}

void linear(const Op *op, const Context *c) { multiply(op, c, 0); }
void lora_linear(const Op *op, const Context *c) { multiply(op, c, 1); }

// y[m, s] = W[e] x[m, s] for the experts e that `route` chose for each row, on activations prepared by `quantize`. W has
// the experts' matrices one below the other.
// a: matrix, y, what `route` made, used, rows of an expert (whole bands), rows of x for each row: `used`, or 1 that all
//    its experts read; activations as in `linear` (4), the number of rows of the shared ones being that of all rows of x;
//    mode
void expert_linear(const Op *op, const Context *c) {
  const PackedMatrix *w = at(op->a[0]);
  const f32 *chosen = at(op->a[2]);
  const u32 used = op->a[3], n = op->a[4], slots = op->a[5], single = c->m * slots == 1;
  const u32 address = single ? op->a[6] + c->worker * op->a[7] : op->a[8];
  const Activations x = activations(address, w->columns, single ? 1 : op->a[9], op->a[10]);
  const u32 groups = groups_of(w->kind, x.limbs, 1), bands = n / 16;
  // One row has work for its experts only. Many have some for nearly all: a band is then read once, for all its rows.
  const u32 total = (c->m == 1 ? used : w->rows / n) * bands;
  for (Work work = work_of(c, total, max_u(1, total / (c->workers * 8))); next_piece(&work);) {
    for (u32 unit = work.begin; unit < work.end; unit++) {
      const u32 expert = c->m == 1 ? (u32)chosen[unit / bands] : unit / bands, band = unit % bands;
      for (u32 i = 0; i < c->m * used; i++) {
        const u32 m = i / used;
        if ((u32)chosen[m * 2 * used + i % used] != expert) continue;
        f32 *y = (f32 *)at(op->a[1]) + i * n + band * 16;
        for (u32 g = 0; g < 4; g += groups) {
          v128_t out[4];
          any_tile(w, (expert * bands + band) * 4 + g, groups, &x, slots == 1 ? m : i, 1, out);
          for (u32 j = 0; j < groups; j++) wasm_v128_store(y + (g + j) * 4, out[j]);
        }
      }
    }
  }
}

// Quantizes row m of x into its place among the activations.
static void quantize_row(const f32 *x, const Activations *to, u32 m) {
  const u32 mode = to->limbs, lanes = to->lanes, blocks = to->columns / 32, tile = m / lanes * lanes, lane = m % lanes;
  uint8_t *q = to->q + tile * to->columns * mode + lane * 32 * mode;
  f32 *s = to->s + tile * blocks + lane, *t = to->t + tile * blocks + lane, *u = to->u + tile * blocks + lane;
  int16_t *wide = to->wide + (tile * blocks + lane) * 32;
  for (u32 b = 0; b < blocks; b++, x += 32, q += 32 * mode * lanes, wide += 32 * lanes, s += lanes, t += lanes, u += lanes) {
    const f32 limit = mode == FAST ? 127 : 127 * 128, largest = abs_max_of(x, 32);
    const f32 scale = largest / limit;
    const v128_t inverse = wasm_f32x4_splat(scale > 0 ? 1 / scale : 0);
    i32 sum[2];
    for (u32 i = 0; i < 32; i += 16) {
      v128_t whole[4];
      for (u32 j = 0; j < 4; j++) whole[j] = whole4(load(x + i + 4 * j), inverse);
      const v128_t four = wasm_i32x4_add(wasm_i32x4_add(whole[0], whole[1]), wasm_i32x4_add(whole[2], whole[3]));
      sum[i / 16] = wasm_i32x4_extract_lane(four, 0) + wasm_i32x4_extract_lane(four, 1) + wasm_i32x4_extract_lane(four, 2) +
                    wasm_i32x4_extract_lane(four, 3);
      const v128_t a = wasm_i16x8_narrow_i32x4(whole[0], whole[1]), z = wasm_i16x8_narrow_i32x4(whole[2], whole[3]);
      if (mode == FAST) {
        wasm_v128_store(q + i, wasm_i8x16_narrow_i16x8(a, z));
      } else {
        const v128_t round = wasm_i16x8_const_splat(64);
        const v128_t ah = wasm_i16x8_shr(wasm_i16x8_add(a, round), 7), zh = wasm_i16x8_shr(wasm_i16x8_add(z, round), 7);
        wasm_v128_store(q + i, wasm_i8x16_narrow_i16x8(ah, zh));
        if (WIDE(8)) wasm_v128_store(wide + i, a), wasm_v128_store(wide + i + 8, z);
        wasm_v128_store(q + 32 + i, wasm_i8x16_narrow_i16x8(wasm_i16x8_sub(a, wasm_i16x8_shl(ah, 7)),
                                                            wasm_i16x8_sub(z, wasm_i16x8_shl(zh, 7))));
      }
    }
    *s = scale;
    *t = scale * (f32)(sum[0] + sum[1]);
    *u = scale * (f32)sum[0];
  }
}

// Prepares x for a linear: normalized by RMS if there are norm weights, then quantized.
// If there is one row, every worker makes its own copy, which is cheaper than a barrier. If there are many, each worker
// prepares some of them for all workers.
// a: x, columns, norm weights or 0, eps (bits of a float), activations of one row, bytes from worker to worker,
//    activations of many rows, rows these have room for, mode, a row of floats for each worker,
//    1 if x has all of the state's rows, of which the context may need only the last ones (Context.first),
//    the rows of x for each row of the state (0: one)
void quantize(const Op *op, const Context *c) {
  const u32 columns = op->a[1], mode = op->a[8], rows = c->m * max_u(1, op->a[11]), single = rows == 1;
  const u32 address = single ? op->a[4] + c->worker * op->a[5] : op->a[6];
  const Activations to = activations(address, columns, single ? 1 : op->a[7], mode);
  for (u32 m = single ? 0 : c->worker; m < rows; m += single ? 1 : c->workers) {
    const f32 *x = (f32 *)at(op->a[0]) + ((op->a[10] ? c->first : 0) + m) * columns;
    f32 *row = mode == FLOAT ? to.x + m * columns : (f32 *)at(op->a[9] + c->worker * columns * 4);
    if (op->a[2]) {
      normalize(x, at(op->a[2]), columns, real(op->a[3]), row);
      x = row;
    } else if (mode == FLOAT) {
      for (u32 i = 0; i < columns; i += 4) wasm_v128_store(row + i, load(x + i));
    }
    if (mode != FLOAT) quantize_row(x, &to, m);
  }
}
