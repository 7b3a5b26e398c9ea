// y[m, offset + n] = sum_k W[n, k] x[m, k], on activations that `quantize` has prepared.
#include "kernels.h"

enum { PANEL_BYTES = 16 << 10 };
enum { EPILOGUE_NONE = 0, EPILOGUE_RESIDUAL = 1, EPILOGUE_SWIGLU = 2 };

// Activations of rows m, blocks b: bytes [m][b][32 * planes], then scale s and s * sum(q) for each (m, b).
typedef struct { const uint8_t *q; const f32 *s, *t, *x; u32 columns, planes; } Activations;

static Activations activations(u32 address, u32 columns, u32 rows, u32 mode) {
  Activations a = {0};
  a.columns = columns;
  if (mode == FLOAT) { a.x = at(address); return a; }
  a.planes = mode;
  a.q = at(address);
  a.s = (f32 *)(a.q + rows * columns * mode);
  a.t = a.s + rows * (columns / 32);
  return a;
}

// Sums for GROUPS groups of 4 rows and TOKENS rows of x, all blocks. wp: nibble planes of W, xp: byte planes of x.
INLINE void tile(const u32 wp, const u32 xp, const u32 GROUPS, const u32 TOKENS, const uint8_t *w, const Activations *x,
                 u32 m0, v128_t *out) {
  const u32 blocks = x->columns / 32, block_bytes = wp * 64 + 32, group_bytes = blocks * block_bytes;
  const v128_t mask = wasm_i8x16_const_splat(15);
  v128_t total[4][4];
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
    for (u32 t = 0; t < TOKENS; t++) total[g][t] = wasm_f32x4_const_splat(0);
  for (u32 b = 0; b < blocks; b++, w += block_bytes) {
    v128_t sums[4][4];
#pragma unroll
    for (u32 p = 0; p < wp; p++) {
      // The bytes of x one after the other: unpacking the nibbles again costs less than accumulators in memory.
#pragma unroll
      for (u32 half = 0; half < xp; half++) {
        Acc acc[4][4];
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
          for (u32 t = 0; t < TOKENS; t++) acc[g][t] = acc_zero();
#pragma unroll
        for (u32 v = 0; v < 4; v++) {
          v128_t low[4], high[4];
#pragma unroll
          for (u32 g = 0; g < GROUPS; g++) {
            const v128_t packed = load(w + g * group_bytes + p * 64 + v * 16);
            low[g] = wasm_v128_and(packed, mask);
            high[g] = wasm_u8x16_shr(packed, 4);
          }
#pragma unroll
          for (u32 t = 0; t < TOKENS; t++) {
            const uint8_t *q = x->q + ((m0 + t) * blocks + b) * 32 * xp + 32 * half + 4 * v;
            const v128_t first = splat4(q), second = splat4(q + 16);
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) acc[g][t] = acc_dot(second, high[g], acc_dot(first, low[g], acc[g][t]));
          }
        }
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
          for (u32 t = 0; t < TOKENS; t++) {
            v128_t sum = acc_rows(acc[g][t]);
            // x = 128 * first byte + second byte; q = low plane + 16 * high plane
            const u32 shift = (xp == 2 && half == 0 ? 7 : 0) + (p == 1 ? 4 : 0);
            if (shift) sum = wasm_i32x4_shl(sum, shift);
            sums[g][t] = p == 0 && half == 0 ? sum : wasm_i32x4_add(sums[g][t], sum);
          }
      }
    }
#pragma unroll
    for (u32 g = 0; g < GROUPS; g++) {
      const v128_t d = load(w + g * group_bytes + wp * 64), m = load(w + g * group_bytes + wp * 64 + 16);
#pragma unroll
      for (u32 t = 0; t < TOKENS; t++) {
        const u32 i = (m0 + t) * blocks + b;
        const v128_t scaled = wasm_f32x4_mul(d, splat4(x->s + i));
        total[g][t] = madd(wasm_f32x4_convert_i32x4(sums[g][t]), scaled, total[g][t]);
        total[g][t] = madd(m, splat4(x->t + i), total[g][t]);
      }
    }
  }
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++)
#pragma unroll
    for (u32 t = 0; t < TOKENS; t++) out[g * TOKENS + t] = total[g][t];
}

// The same for weights that are floats.
static void float_tile(const Matrix *w, u32 group, u32 groups, u32 tokens, const Activations *x, u32 m0, v128_t *out) {
  const u32 k = w->columns;
  for (u32 g = 0; g < groups; g++)
    for (u32 t = 0; t < tokens; t++) {
      const f32 *in = x->x + (m0 + t) * k;
      v128_t sum = wasm_f32x4_const_splat(0);
      if (w->kind == FLOAT32) {
        const f32 *values = (f32 *)at(w->data) + (group + g) * 4 * k;
        for (u32 c = 0; c < k; c++) sum = madd(load(values + 4 * c), splat4(in + c), sum);
      } else {
        const uint16_t *values = (uint16_t *)at(w->data) + (group + g) * 4 * k;
        for (u32 c = 0; c < k; c++) sum = madd(halves4(wasm_v128_load64_zero(values + 4 * c)), splat4(in + c), sum);
      }
      out[g * tokens + t] = sum;
    }
}

// A tile of groups x tokens. Which shapes are worth code of their own was measured (docs/decisions.md): for one row of x
// 4 x 1; for many 2 x 4 in fast mode and 4 x 2 in precise mode, whose x is twice as long; singles for what is left over.
static void any_tile(const Matrix *w, u32 group, u32 groups, u32 tokens, const Activations *x, u32 m0, v128_t *out) {
  if (w->kind >= FLOAT32) { float_tile(w, group, groups, tokens, x, m0, out); return; }
  const uint8_t *data = (uint8_t *)at(w->data) + group * (w->columns / 32) * (w->kind * 64 + 32);
  const u32 fast = x->planes == FAST, one_plane = w->kind == NIBBLES;
#define TILE(G, T, xp) \
  if (one_plane) tile(1, xp, G, T, data, x, m0, out); else tile(2, xp, G, T, data, x, m0, out)
  if (tokens == 4) { if (groups == 2) { TILE(2, 4, 1); } else { TILE(1, 4, 1); } }
  else if (tokens == 2) { if (groups == 4) { TILE(4, 2, 2); } else { TILE(1, 2, 2); } }
  else if (groups == 4) { if (fast) { TILE(4, 1, 1); } else { TILE(4, 1, 2); } }
  else { if (fast) { TILE(1, 1, 1); } else { TILE(1, 1, 2); } }
#undef TILE
}

INLINE v128_t silu(v128_t x) {
  const v128_t one = wasm_f32x4_const_splat(1);
  return wasm_f32x4_div(x, wasm_f32x4_add(one, exp4(wasm_f32x4_neg(x))));
}

// a: matrix, y, stride, offset, epilogue, activations of one row (each worker's own), bytes from worker to worker,
//    activations of many rows (shared), rows these have room for, mode
void linear(const Op *op, const Context *c) {
  const Matrix *w = at(op->a[0]);
  f32 *y = at(op->a[1]);
  const u32 stride = op->a[2], offset = op->a[3], epilogue = op->a[4], mode = op->a[9];
  const u32 address = c->m == 1 ? op->a[5] + c->worker * op->a[6] : op->a[7];
  const Activations x = activations(address, w->columns, c->m == 1 ? 1 : op->a[8], mode);
  // SwiGLU: gates are the first half of W's rows, ups the second.
  const u32 n = epilogue == EPILOGUE_SWIGLU ? w->rows / 2 : w->rows, groups = (n + 3) / 4;
  const u32 batch = c->m == 1 ? 1 : mode == FAST ? 4 : 2;  // rows of x in a tile
  const u32 step = batch == 4 ? 2 : 4;                     // groups in a tile
  // Some eight pieces a worker, in whole tiles
  const u32 chunk = max_u(step, groups / (c->workers * 8) / step * step);
  // A panel of W's rows stays in the first-level cache while the rows of x pass by.
  const u32 panel = max_u(step, PANEL_BYTES / (w->columns * 4) / step * step);
  u32 mine = 0;
  for (u32 begin; (begin = next_chunk(c->workers, chunk, &mine)) < groups;) {
    const u32 end = min_u(groups, begin + chunk);
    for (u32 first = begin; first < end; first += panel) {
      const u32 last = min_u(end, first + panel);
      for (u32 m = 0, tokens; m < c->m; m += tokens) {
        tokens = c->m - m >= batch ? batch : 1;
        for (u32 g = first, many; g < last; g += many) {
          // There is no tile of 2 groups for a row of x that is left over.
          many = g + step <= last && (tokens == batch || step == 4) ? step : 1;
          v128_t out[16], ups[16];
          any_tile(w, g, many, tokens, &x, m, out);
          if (epilogue == EPILOGUE_SWIGLU) any_tile(w, g + groups, many, tokens, &x, m, ups);
          for (u32 i = 0; i < many * tokens; i++) {
            const u32 row = (g + i / tokens) * 4;
            f32 *to = y + (m + i % tokens) * stride + offset + row;
            v128_t sum = out[i];
            if (epilogue == EPILOGUE_SWIGLU) sum = wasm_f32x4_mul(silu(sum), ups[i]);
            if (row + 4 <= n) {
              if (epilogue == EPILOGUE_RESIDUAL) sum = wasm_f32x4_add(sum, load(to));
              wasm_v128_store(to, sum);
            } else {
              f32 lanes[4];
              wasm_v128_store(lanes, sum);
              for (u32 r = 0; row + r < n; r++) to[r] = epilogue == EPILOGUE_RESIDUAL ? to[r] + lanes[r] : lanes[r];
            }
          }
        }
      }
    }
  }
}

// y[m, i] = silu(pair[m, i]) * pair[m, n + i], for gates and ups that are no joint matrix.  a: pair, y, n
void swiglu(const Op *op, const Context *c) {
  const u32 n = op->a[2];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *pair = (f32 *)at(op->a[0]) + 2 * m * n;
    f32 *y = (f32 *)at(op->a[1]) + m * n;
    for (u32 i = 0; i < n; i += 4) wasm_v128_store(y + i, wasm_f32x4_mul(silu(load(pair + i)), load(pair + n + i)));
  }
}

INLINE v128_t abs_max(v128_t a, v128_t b) { return wasm_f32x4_pmax(a, wasm_f32x4_abs(b)); }

static void quantize_row(const f32 *x, u32 columns, u32 mode, uint8_t *q, f32 *s, f32 *t) {
  for (u32 b = 0; b < columns / 32; b++, x += 32, q += 32 * mode) {
    v128_t most = wasm_f32x4_abs(load(x));
    for (u32 i = 4; i < 32; i += 4) most = abs_max(most, load(x + i));
    most = wasm_f32x4_pmax(most, wasm_i32x4_shuffle(most, most, 2, 3, 0, 1));
    const f32 limit = mode == FAST ? 127 : 127 * 128;
    const f32 largest = wasm_f32x4_extract_lane(wasm_f32x4_pmax(most, wasm_i32x4_shuffle(most, most, 1, 0, 3, 2)), 0);
    const f32 scale = largest / limit;
    const v128_t inverse = wasm_f32x4_splat(scale > 0 ? 1 / scale : 0);
    v128_t sum = wasm_i32x4_const_splat(0);
    for (u32 i = 0; i < 32; i += 16) {
      v128_t whole[4];
      for (u32 j = 0; j < 4; j++) {
        whole[j] = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(wasm_f32x4_mul(load(x + i + 4 * j), inverse)));
        sum = wasm_i32x4_add(sum, whole[j]);
      }
      const v128_t a = wasm_i16x8_narrow_i32x4(whole[0], whole[1]), z = wasm_i16x8_narrow_i32x4(whole[2], whole[3]);
      if (mode == FAST) {
        wasm_v128_store(q + i, wasm_i8x16_narrow_i16x8(a, z));
      } else {
        const v128_t round = wasm_i16x8_const_splat(64);
        const v128_t ah = wasm_i16x8_shr(wasm_i16x8_add(a, round), 7), zh = wasm_i16x8_shr(wasm_i16x8_add(z, round), 7);
        wasm_v128_store(q + i, wasm_i8x16_narrow_i16x8(ah, zh));
        wasm_v128_store(q + 32 + i, wasm_i8x16_narrow_i16x8(wasm_i16x8_sub(a, wasm_i16x8_shl(ah, 7)),
                                                            wasm_i16x8_sub(z, wasm_i16x8_shl(zh, 7))));
      }
    }
    s[b] = scale;
    t[b] = scale * (f32)(wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1) +
                         wasm_i32x4_extract_lane(sum, 2) + wasm_i32x4_extract_lane(sum, 3));
  }
}

// Prepares x for a linear: normalized by RMS if there are norm weights, then quantized.
// One row: every worker makes its own copy, which is cheaper than a barrier. Many: each makes some of the shared ones.
// a: x, columns, norm weights or 0, eps (bits of a float), activations of one row, bytes from worker to worker,
//    activations of many rows, rows these have room for, mode, a row of floats for each worker, last row only
void quantize(const Op *op, const Context *c) {
  const u32 columns = op->a[1], mode = op->a[8], single = c->m == 1;
  const u32 room = single ? 1 : op->a[7];
  const u32 address = single ? op->a[4] + c->worker * op->a[5] : op->a[6];
  const f32 *weight = at(op->a[2]);
  f32 eps;
  __builtin_memcpy(&eps, &op->a[3], 4);
  uint8_t *q = at(address);
  f32 *s = (f32 *)(q + room * columns * mode), *t = s + room * (columns / 32);
  for (u32 m = single ? 0 : c->worker; m < c->m; m += single ? 1 : c->workers) {
    const f32 *x = (f32 *)at(op->a[0]) + (op->a[10] ? c->state->count - 1 : m) * columns;
    f32 *row = mode == FLOAT ? (f32 *)at(address) + m * columns : (f32 *)at(op->a[9] + c->worker * columns * 4);
    if (op->a[2]) {
      v128_t squares = wasm_f32x4_const_splat(0);
      for (u32 i = 0; i < columns; i += 4) squares = madd(load(x + i), load(x + i), squares);
      const v128_t scale = wasm_f32x4_splat(1 / __builtin_sqrtf(sum4(squares) / (f32)columns + eps));
      for (u32 i = 0; i < columns; i += 4)
        wasm_v128_store(row + i, wasm_f32x4_mul(wasm_f32x4_mul(load(x + i), scale), load(weight + i)));
      x = row;
    } else if (mode == FLOAT) {
      for (u32 i = 0; i < columns; i += 4) wasm_v128_store(row + i, load(x + i));
    }
    if (mode != FLOAT) quantize_row(x, columns, mode, q + m * columns * mode, s + m * (columns / 32), t + m * (columns / 32));
  }
}
