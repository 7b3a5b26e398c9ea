// Operations on all parameters at once: the gradient's norm, AdamW's step, Fisher information.
#include "training.h"

typedef double f64;
enum { PART = 8192 };  // floats whose squares are summed together
// AdamW's numbers; the last two are 1 / (1 - beta^steps).
typedef struct { f32 rate, beta1, rest1, beta2, rest2, eps, decay, clip, first_up, second_up; } Rule;
typedef struct { f64 norm; u32 applied, unused; } Result;

// parts[i] = the sum of squares of part i: the parts are the same for any number of workers.  a: gradient, size, parts
void sum_squares(const Op *op, const Context *c) {
  const f32 *x = at(op->a[0]);
  f64 *parts = at(op->a[2]);
  for (Work work = work_of(c, (op->a[1] + PART - 1) / PART, 1); next_piece(&work);) {
    const u32 last = min_u(op->a[1], (work.begin + 1) * PART);
    v128_t low = wasm_f64x2_const_splat(0), high = low;
    for (u32 i = work.begin * PART; i < last; i += 4) {
      const v128_t four = load(x + i), a = wasm_f64x2_promote_low_f32x4(four);
      const v128_t b = wasm_f64x2_promote_low_f32x4(wasm_i32x4_shuffle(four, four, 2, 3, 2, 3));
      low = wasm_f64x2_add(low, wasm_f64x2_mul(a, a)), high = wasm_f64x2_add(high, wasm_f64x2_mul(b, b));
    }
    low = wasm_f64x2_add(low, high);
    parts[work.begin] = wasm_f64x2_extract_lane(low, 0) + wasm_f64x2_extract_lane(low, 1);
  }
}

// p -= rate * (m / (sqrt(v) + eps) + decay * p), with the gradient scaled down to a norm of `clip` and moments
// corrected for their start from 0. Nothing changes if the norm is not finite. The gradient is 0 afterwards.
// a: gradient, size, parts, parameters, first moment, second moment, rule, result
void adamw(const Op *op, const Context *c) {
  f32 *g = at(op->a[0]), *p = at(op->a[3]), *m = at(op->a[4]), *v = at(op->a[5]);
  const f64 *parts = at(op->a[2]);
  const Rule rule = *(Rule *)at(op->a[6]);
  const u32 size = op->a[1], count = (size + PART - 1) / PART;
  f64 squares = 0;
  for (u32 i = 0; i < count; i++) squares += parts[i];
  const f64 norm = __builtin_sqrt(squares);
  const u32 applied = norm - norm == 0;
  if (c->worker == 0) *(Result *)at(op->a[7]) = (Result){norm, applied, 0};
  const v128_t shrink = wasm_f32x4_splat(rule.clip > 0 && norm > rule.clip ? (f32)(rule.clip / norm) : 1);
  const v128_t beta1 = wasm_f32x4_splat(rule.beta1), rest1 = wasm_f32x4_splat(rule.rest1);
  const v128_t beta2 = wasm_f32x4_splat(rule.beta2), rest2 = wasm_f32x4_splat(rule.rest2);
  const v128_t first_up = wasm_f32x4_splat(rule.first_up), second_up = wasm_f32x4_splat(rule.second_up);
  for (Work work = work_of(c, count, 1); next_piece(&work);) {
    const u32 last = min_u(size, (work.begin + 1) * PART);
    for (u32 i = work.begin * PART; i < last; i += 4) {
      if (applied) {
        const v128_t gradient = wasm_f32x4_mul(load(g + i), shrink);
        const v128_t first = madd(load(m + i), beta1, wasm_f32x4_mul(gradient, rest1));
        const v128_t second = madd(load(v + i), beta2, wasm_f32x4_mul(wasm_f32x4_mul(gradient, gradient), rest2));
        const v128_t root = wasm_f32x4_add(wasm_f32x4_sqrt(wasm_f32x4_mul(second, second_up)), wasm_f32x4_splat(rule.eps));
        v128_t change = wasm_f32x4_div(wasm_f32x4_mul(first, first_up), root);
        change = madd(wasm_f32x4_splat(rule.decay), load(p + i), change);
        wasm_v128_store(m + i, first);
        wasm_v128_store(v + i, second);
        wasm_v128_store(p + i, wasm_f32x4_sub(load(p + i), wasm_f32x4_mul(wasm_f32x4_splat(rule.rate), change)));
      }
      wasm_v128_store(g + i, wasm_f32x4_const_splat(0));
    }
  }
}

// fisher = keep * fisher + weight * gradient^2; the gradient is 0 afterwards.  a: gradient, size, fisher, keep, weight
void add_fisher(const Op *op, const Context *c) {
  f32 *g = at(op->a[0]), *fisher = at(op->a[2]);
  const v128_t keep = wasm_f32x4_splat(real(op->a[3])), weight = wasm_f32x4_splat(real(op->a[4]));
  const u32 size = op->a[1];
  for (Work work = work_of(c, (size + PART - 1) / PART, 1); next_piece(&work);) {
    const u32 last = min_u(size, (work.begin + 1) * PART);
    for (u32 i = work.begin * PART; i < last; i += 4) {
      const v128_t square = wasm_f32x4_mul(load(g + i), load(g + i));
      wasm_v128_store(fisher + i, madd(square, weight, wasm_f32x4_mul(keep, load(fisher + i))));
      wasm_v128_store(g + i, wasm_f32x4_const_splat(0));
    }
  }
}

// gradient += elastic * fisher * (p - anchor), and for each part the sum of fisher * (p - anchor)^2.
// a: gradient, size, parameters, fisher, anchor, sums, elastic
void add_pull(const Op *op, const Context *c) {
  f32 *g = at(op->a[0]);
  const f32 *p = at(op->a[2]), *fisher = at(op->a[3]), *anchor = at(op->a[4]);
  f64 *sums = at(op->a[5]);
  const v128_t elastic = wasm_f32x4_splat(real(op->a[6]));
  const u32 size = op->a[1];
  for (Work work = work_of(c, (size + PART - 1) / PART, 1); next_piece(&work);) {
    const u32 last = min_u(size, (work.begin + 1) * PART);
    v128_t sum = wasm_f64x2_const_splat(0);
    for (u32 i = work.begin * PART; i < last; i += 4) {
      const v128_t apart = wasm_f32x4_sub(load(p + i), load(anchor + i)), held = wasm_f32x4_mul(load(fisher + i), apart);
      const v128_t four = wasm_f32x4_mul(held, apart);
      wasm_v128_store(g + i, madd(elastic, held, load(g + i)));
      sum = wasm_f64x2_add(sum, wasm_f64x2_promote_low_f32x4(four));
      sum = wasm_f64x2_add(sum, wasm_f64x2_promote_low_f32x4(wasm_i32x4_shuffle(four, four, 2, 3, 2, 3)));
    }
    sums[work.begin] = wasm_f64x2_extract_lane(sum, 0) + wasm_f64x2_extract_lane(sum, 1);
  }
}

// a: numbers, size
void clear(const Op *op, const Context *c) {
  const u32 size = op->a[1];
  for (Work work = work_of(c, (size + PART - 1) / PART, 1); next_piece(&work);)
    __builtin_memset((f32 *)at(op->a[0]) + work.begin * PART, 0, min_u(PART, size - work.begin * PART) * 4);
}
