// The gated delta rule: a matrix S for each head, which lies in the states of a sequence's pages.
#include "pages.h"

enum { COLUMNS = 16 };

// The place of a layer's heads in a state. The table has `max_pages` entries for each sequence: addresses of states.
typedef struct { u32 offset, max_pages; const u32 *table; } StateLayer;

// A head's part of a state: S of the page's beginning, (size, size), and for each position of the page k, u and the sum
// of g since the page's beginning. S behind position t of the page is exp(sum[t]) S + sum over j <= t of
// exp(sum[t] - sum[j]) k[j]^T u[j].
typedef struct { f32 *s, *k, *u, *sum; } HeadState;
INLINE HeadState head_state(u32 address, u32 head, u32 size) {
  f32 *s = (f32 *)at(address) + head * (size * size + 2 * PAGE * size + PAGE);
  return (HeadState){s, s + size * size, s + size * size + PAGE * size, s + size * size + 2 * PAGE * size};
}

INLINE f32 dot(const f32 *a, const f32 *b, u32 size) {
  v128_t sum = wasm_f32x4_const_splat(0);
  for (u32 i = 0; i < size; i += 4) sum = madd(load(a + i), load(b + i), sum);
  return sum4(sum);
}

// S of a page's beginning: what is behind the last position of the page before, or 0.
static void begin_page(const HeadState *to, const HeadState *before, u32 size) {
  f32 decay[PAGE];
  if (!before) {
    for (u32 i = 0; i < size * size; i += 4) wasm_v128_store(to->s + i, wasm_f32x4_const_splat(0));
    return;
  }
  const v128_t last = wasm_f32x4_splat(before->sum[PAGE - 1]), all = exp4(last);
  for (u32 j = 0; j < PAGE; j += 4) wasm_v128_store(decay + j, exp4(wasm_f32x4_sub(last, load(before->sum + j))));
  for (u32 i = 0; i < size; i++) {
    f32 keys[PAGE];
    for (u32 j = 0; j < PAGE; j++) keys[j] = decay[j] * before->k[j * size + i];
    for (u32 c = 0; c < size; c += COLUMNS) {
      const f32 *old = before->s + i * size + c, *u = before->u + c;
      v128_t a[4];
      for (u32 q = 0; q < 4; q++) a[q] = wasm_f32x4_mul(all, load(old + 4 * q));
      for (u32 j = 0; j < PAGE; j++) {
        const v128_t key = wasm_f32x4_splat(keys[j]);
        for (u32 q = 0; q < 4; q++) a[q] = madd(key, load(u + j * size + 4 * q), a[q]);
      }
      for (u32 q = 0; q < 4; q++) wasm_v128_store(to->s + i * size + c + 4 * q, a[q]);
    }
  }
}

// For each row at position t: u = sigmoid(beta) (v - k S) and y = q S behind it, with g = rate softplus(alpha + bias).
// A row of x has q and k of the key heads, which are divided by their lengths (q also by sqrt(size)), and v of all heads;
// head h reads key head h % key_heads. k, u and the sum of g are kept in the state of the page.
// Each worker has heads of its own, and goes through the rows in order.
// a: x, alpha, beta, y, key heads, heads, size (a multiple of 16), rate, bias, StateLayer
void delta_rule(const Op *op, const Context *c) {
  const u32 key_heads = op->a[4], heads = op->a[5], size = op->a[6], width = (2 * key_heads + heads) * size;
  const StateLayer *layer = at(op->a[9]);
  for (u32 head = c->worker; head < heads; head += c->workers) {
    const f32 rate = ((f32 *)at(op->a[7]))[head], bias = ((f32 *)at(op->a[8]))[head];
    for (u32 m = 0; m < c->m; m++) {
      const u32 *states = layer->table + c->state->rows[m].slot * layer->max_pages;
      const u32 position = c->state->rows[m].position, place = position / PAGE, row = position % PAGE;
      const HeadState here = head_state(states[place] + layer->offset, head, size);
      if (!row) {
        const HeadState before = head_state(states[place ? place - 1 : 0] + layer->offset, head, size);
        begin_page(&here, place ? &before : 0, size);
      }
      const f32 *x = (f32 *)at(op->a[0]) + m * width, *v = x + (2 * key_heads + head) * size;
      const f32 alpha = ((f32 *)at(op->a[1]))[m * heads + head] + bias, beta = ((f32 *)at(op->a[2]))[m * heads + head];
      const f32 softplus = alpha > 20 ? alpha : log1(1 + exp1(alpha)), share = 1 / (1 + exp1(-beta));
      const f32 sum = (row ? here.sum[row - 1] : 0) + rate * softplus, all = exp1(sum);
      f32 q[MOST_HEAD_DIM], *k = here.k + row * size, *u = here.u + row * size;
      const f32 *x_q = x + head % key_heads * size, *x_k = x_q + key_heads * size;
      const f32 of_q = 1 / __builtin_sqrtf((dot(x_q, x_q, size) + 1e-6f) * (f32)size);
      const f32 of_k = 1 / __builtin_sqrtf(dot(x_k, x_k, size) + 1e-6f);
      for (u32 i = 0; i < size; i += 4) {
        wasm_v128_store(q + i, wasm_f32x4_mul(load(x_q + i), wasm_f32x4_splat(of_q)));
        wasm_v128_store(k + i, wasm_f32x4_mul(load(x_k + i), wasm_f32x4_splat(of_k)));
      }
      here.sum[row] = sum;
      f32 seen[PAGE], asked[PAGE];
      for (u32 j = 0; j < row; j++) {
        const f32 decay = exp1(sum - here.sum[j]);
        seen[j] = decay * dot(k, here.k + j * size, size);
        asked[j] = decay * dot(q, here.k + j * size, size);
      }
      const v128_t own = wasm_f32x4_splat(dot(q, k, size));
      f32 *y = (f32 *)at(op->a[3]) + (m * heads + head) * size;
      for (u32 first = 0; first < size; first += COLUMNS) {
        v128_t a[4], b[4];
        for (u32 n = 0; n < 4; n++) a[n] = b[n] = wasm_f32x4_const_splat(0);
        for (u32 i = 0; i < size; i++) {
          const v128_t key = wasm_f32x4_splat(k[i]), query = wasm_f32x4_splat(q[i]);
          for (u32 n = 0; n < 4; n++) {
            const v128_t s = load(here.s + i * size + first + 4 * n);
            a[n] = madd(key, s, a[n]);
            b[n] = madd(query, s, b[n]);
          }
        }
        for (u32 n = 0; n < 4; n++) {
          a[n] = wasm_f32x4_mul(a[n], wasm_f32x4_splat(all));
          b[n] = wasm_f32x4_mul(b[n], wasm_f32x4_splat(all));
        }
        for (u32 j = 0; j < row; j++) {
          const v128_t key = wasm_f32x4_splat(seen[j]), query = wasm_f32x4_splat(asked[j]);
          for (u32 n = 0; n < 4; n++) {
            const v128_t other = load(here.u + j * size + first + 4 * n);
            a[n] = madd(key, other, a[n]);
            b[n] = madd(query, other, b[n]);
          }
        }
        for (u32 n = 0; n < 4; n++) {
          const u32 i = first + 4 * n;
          const v128_t new = wasm_f32x4_mul(wasm_f32x4_splat(share), wasm_f32x4_sub(load(v + i), a[n]));
          wasm_v128_store(u + i, new);
          wasm_v128_store(y + i, madd(own, new, b[n]));
        }
      }
    }
  }
}
