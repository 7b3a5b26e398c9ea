// Row-wise operations on values from other kernels, each row by one worker: norms, gates, rotations, sums, caps;
// and copies.
#include "kernels.h"

// out = x / sqrt(mean(x^2) + eps) * weight; out may be x.
void normalize(const f32 *x, const f32 *weight, u32 size, f32 eps, f32 *out) {
  const u32 whole = size & ~3u;
  v128_t squares = wasm_f32x4_const_splat(0);
  for (u32 i = 0; i < whole; i += 4) squares = madd(load(x + i), load(x + i), squares);
  f32 sum = sum4(squares);
  for (u32 i = whole; i < size; i++) sum += x[i] * x[i];
  const f32 factor = 1 / __builtin_sqrtf(sum / (f32)size + eps);
  const v128_t scale = wasm_f32x4_splat(factor);
  for (u32 i = 0; i < whole; i += 4)
    wasm_v128_store(out + i, wasm_f32x4_mul(wasm_f32x4_mul(load(x + i), scale), load(weight + i)));
  for (u32 i = whole; i < size; i++) out[i] = x[i] * factor * weight[i];
}

// Rotates the first 2 * pairs values of a head by the angles of its position: neighbours, or halves. The others stay
// unchanged.
void rotate(const f32 *restrict x, const f32 *angles, u32 pairs, u32 interleaved, u32 size, f32 *restrict out) {
  for (u32 i = 0; i < pairs; i++) {
    const f32 cos = angles[2 * i], sin = angles[2 * i + 1];
    const u32 a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + pairs;
    out[a] = x[a] * cos - x[b] * sin;
    out[b] = x[a] * sin + x[b] * cos;
  }
  for (u32 i = 2 * pairs; i < size; i++) out[i] = x[i];
}

// Stores the first `left` numbers of a vector, if it has more.
INLINE void store_up_to(f32 *to, v128_t numbers, u32 left) {
  if (left >= 4) { wasm_v128_store(to, numbers); return; }
  f32 lanes[4];
  wasm_v128_store(lanes, numbers);
  for (u32 i = 0; i < left; i++) to[i] = lanes[i];
}

// y[m, i] = activation(gate[m, i]) * up[m, i].  a: gate, up, floats from row to row of gate, y, n, activation, floats from row to row of up
void glu(const Op *op, const Context *c) {
  const u32 n = op->a[4], activation = op->a[5];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *gate = (f32 *)at(op->a[0]) + m * op->a[2], *up = (f32 *)at(op->a[1]) + m * op->a[6];
    f32 *y = (f32 *)at(op->a[3]) + m * n;
    for (u32 i = 0; i < n; i += 4) {
      const v128_t g = load(gate + i), open = activation == SIGMOID ? sigmoid(g) : activate(activation, g);
      store_up_to(y + i, wasm_f32x4_mul(open, load(up + i)), n - i);
    }
  }
}

// y[m, h] = norm(x[m, h]) for each head of a row, or y[m, h] += norm(x[m, h]), which overwrites x.
// a: x, heads, size of a head, norm weights, eps, y, 1 to add, 1 if x has all of the state's rows, of which the context may
//    need only the last ones (Context.first)
void norm(const Op *op, const Context *c) {
  const u32 heads = op->a[1], size = op->a[2];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *x = (f32 *)at(op->a[0]) + ((op->a[7] ? c->first : 0) + m) * heads * size;
    f32 *y = (f32 *)at(op->a[5]) + m * heads * size;
    for (u32 h = 0; h < heads; h++, x += size, y += size) {
      if (!op->a[6]) { normalize(x, at(op->a[3]), size, real(op->a[4]), y); continue; }
      normalize(x, at(op->a[3]), size, real(op->a[4]), (f32 *)x);
      for (u32 i = 0; i < size; i += 4) wasm_v128_store(y + i, wasm_f32x4_add(load(y + i), load(x + i)));
    }
  }
}

// y[m, h] = x[m, 2 h], or x[m, 2 h + 1].  a: x, y, width of y, size of a head, 1 for the second of two heads
void half_heads(const Op *op, const Context *c) {
  const u32 width = op->a[2], size = op->a[3];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *x = (f32 *)at(op->a[0]) + m * 2 * width + op->a[4] * size;
    f32 *y = (f32 *)at(op->a[1]) + m * width;
    for (u32 i = 0; i < width; i++) y[i] = x[i / size * 2 * size + i % size];
  }
}

// y[m, h] = rope(x[m, h]).  a: x, y, heads, size of a head, angles, pairs that rotate, 1 if these are neighbours
void rope(const Op *op, const Context *c) {
  const u32 heads = op->a[2], size = op->a[3], pairs = op->a[5];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *x = (f32 *)at(op->a[0]) + m * heads * size;
    const f32 *angles = (f32 *)at(op->a[4]) + c->state->rows[m].position * pairs * 2;
    f32 *y = (f32 *)at(op->a[1]) + m * heads * size;
    for (u32 h = 0; h < heads; h++) rotate(x + h * size, angles, pairs, op->a[6], size, y + h * size);
  }
}

// y = a + b.  a: a, b, y, width
void add(const Op *op, const Context *c) {
  const u32 width = op->a[3];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *a = (f32 *)at(op->a[0]) + m * width, *b = (f32 *)at(op->a[1]) + m * width;
    f32 *y = (f32 *)at(op->a[2]) + m * width;
    for (u32 i = 0; i < width; i += 4) store_up_to(y + i, wasm_f32x4_add(load(a + i), load(b + i)), width - i);
  }
}

// y = x * weight[0].  a: x, y, width, weight
void scale(const Op *op, const Context *c) {
  const u32 width = op->a[2];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *x = (f32 *)at(op->a[0]) + m * width;
    f32 *y = (f32 *)at(op->a[1]) + m * width;
    for (u32 i = 0; i < width; i += 4) store_up_to(y + i, wasm_f32x4_mul(load(x + i), splat4(at(op->a[3]))), width - i);
  }
}

// y = cap * tanh(x / cap).  a: x, y, width, cap, 1 if x has all of the state's rows (as for norm)
void soft_cap(const Op *op, const Context *c) {
  const u32 width = op->a[2];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *x = (f32 *)at(op->a[0]) + ((op->a[4] ? c->first : 0) + m) * width;
    f32 *y = (f32 *)at(op->a[1]) + m * width;
    for (u32 i = 0; i < width; i += 4) store_up_to(y + i, soft_cap4(load(x + i), real(op->a[3])), width - i);
  }
}

// The likeliest experts of each row: their numbers, then their shares of softmax(x).
// a: x, y (2 * used numbers a row), experts, used, 1 if the shares are divided by their sum
void route(const Op *op, const Context *c) {
  const u32 experts = op->a[2], used = op->a[3];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *x = (f32 *)at(op->a[0]) + m * experts;
    f32 *y = (f32 *)at(op->a[1]) + m * 2 * used, chosen = 0, all = 0;
    for (u32 s = 0; s < used; s++) {
      u32 best = experts;
      for (u32 e = 0; e < experts; e++) {
        u32 taken = 0;
        for (u32 i = 0; i < s; i++) taken |= (u32)y[i] == e;
        if (!taken && (best == experts || x[e] > x[best])) best = e;
      }
      y[s] = (f32)best;
      y[used + s] = exp1(x[best] - x[(u32)y[0]]);
      chosen += y[used + s];
    }
    for (u32 e = 0; e < experts; e++) all += exp1(x[e] - x[(u32)y[0]]);
    for (u32 s = 0; s < used; s++) y[used + s] /= op->a[4] ? chosen : all;
  }
}

// y[m, i] = sum over s of share[m, s] * x[m, s, i].  a: x, what `route` made, y, used, n (a multiple of 4)
void mix(const Op *op, const Context *c) {
  const u32 used = op->a[3], n = op->a[4];
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const f32 *x = (f32 *)at(op->a[0]) + m * used * n, *share = (f32 *)at(op->a[1]) + m * 2 * used + used;
    f32 *y = (f32 *)at(op->a[2]) + m * n;
    for (u32 i = 0; i < n; i += 4) {
      v128_t sum = wasm_f32x4_const_splat(0);
      for (u32 s = 0; s < used; s++) sum = madd(load(x + s * n + i), splat4(share + s), sum);
      wasm_v128_store(y + i, sum);
    }
  }
}

// Copies pieces of memory whose addresses are a stride apart.
// a: source, target, bytes of a piece (a multiple of 16), the source's stride, number of pieces, the target's stride
void copy(const Op *op, const Context *c) {
  for (u32 piece = c->worker; piece < op->a[4]; piece += c->workers) {
    const f32 *source = at(op->a[0] + piece * op->a[3]);
    f32 *target = at(op->a[1] + piece * op->a[5]);
    for (u32 i = 0; i < op->a[2] / 4; i += 4) wasm_v128_store(target + i, load(source + i));
  }
}
