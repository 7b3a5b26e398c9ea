// RoPE, the pages of keys and values, and attention with an online softmax, a page at a time.
#include "kernels.h"

enum { PAGE = 64, MOST_GROUP = 16, MOST_HEAD_DIM = 256 };

// Pages: [page][layer][kv head] of keys int16 [PAGE][head_dim], values likewise, then a scale for each key and each
// value. 16 bits with a scale a vector are as good as float32 for the result and half as much to read.
typedef struct {
  u32 heads, kv_heads, head_dim, max_pages;
  u32 page_bytes, head_bytes;
  const u32 *table;
  u32 base;
} Cache;

static Cache cache_of(const Op *op, u32 first) {
  const u32 *a = op->a + first;
  return (Cache){a[0], a[1], a[2], a[3], a[6], PAGE * (a[2] * 4 + 8), at(a[4]), a[5]};
}

INLINE uint8_t *head_page(const Cache *k, u32 slot, u32 position, u32 kv_head) {
  return (uint8_t *)at(k->base + k->table[slot * k->max_pages + position / PAGE] * k->page_bytes + kv_head * k->head_bytes);
}

static void store_vector(const f32 *x, u32 size, int16_t *out, f32 *scale) {
  v128_t most = wasm_f32x4_const_splat(0);
  for (u32 i = 0; i < size; i += 4) most = wasm_f32x4_pmax(most, wasm_f32x4_abs(load(x + i)));
  f32 largest = 0;
  f32 lanes[4];
  wasm_v128_store(lanes, most);
  for (u32 i = 0; i < 4; i++) largest = lanes[i] > largest ? lanes[i] : largest;
  *scale = largest / 32767;
  const v128_t inverse = wasm_f32x4_splat(largest > 0 ? 32767 / largest : 0);
  for (u32 i = 0; i < size; i += 8) {
    const v128_t a = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(wasm_f32x4_mul(load(x + i), inverse)));
    const v128_t z = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(wasm_f32x4_mul(load(x + i + 4), inverse)));
    wasm_v128_store(out + i, wasm_i16x8_narrow_i32x4(a, z));
  }
}

static void rotate(const f32 *x, const f32 *angles, u32 head_dim, u32 interleaved, f32 *out) {
  const u32 half = head_dim / 2;
  for (u32 i = 0; i < half; i++) {
    const f32 cos = angles[2 * i], sin = angles[2 * i + 1];
    const u32 a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
    out[a] = x[a] * cos - x[b] * sin;
    out[b] = x[a] * sin + x[b] * cos;
  }
}

// q_out = rope(q) / sqrt(head_dim); the pages get rope(k) and v.
// a: qkv, angles, q_out, interleaved, then heads, kv heads, head_dim, max pages, page table, the layer's part of page 0,
//    bytes from page to page
void rope_append(const Op *op, const Context *c) {
  const Cache k = cache_of(op, 4);
  const u32 width = (k.heads + 2 * k.kv_heads) * k.head_dim;
  const f32 scale = 1 / __builtin_sqrtf((f32)k.head_dim);
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const Row row = c->state->rows[m];
    const f32 *in = (f32 *)at(op->a[0]) + m * width, *angles = (f32 *)at(op->a[1]) + row.position * k.head_dim;
    f32 *out = (f32 *)at(op->a[2]) + m * k.heads * k.head_dim;
    f32 rotated[MOST_HEAD_DIM];
    for (u32 h = 0; h < k.heads; h++, in += k.head_dim, out += k.head_dim) {
      rotate(in, angles, k.head_dim, op->a[3], out);
      for (u32 i = 0; i < k.head_dim; i++) out[i] *= scale;
    }
    const u32 t = row.position % PAGE;
    for (u32 h = 0; h < k.kv_heads; h++) {
      int16_t *keys = (int16_t *)head_page(&k, row.slot, row.position, h), *values = keys + PAGE * k.head_dim;
      f32 *scales = (f32 *)(values + PAGE * k.head_dim);
      rotate(in + h * k.head_dim, angles, k.head_dim, op->a[3], rotated);
      store_vector(rotated, k.head_dim, keys + t * k.head_dim, scales + t);
      store_vector(in + (k.kv_heads + h) * k.head_dim, k.head_dim, values + t * k.head_dim, scales + PAGE + t);
    }
  }
}

// What one pass over some positions knows of a head: out = values / total.
typedef struct { f32 largest, total; } Softmax;

INLINE v128_t low4(v128_t v) { return wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(v)); }
INLINE v128_t high4(v128_t v) { return wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(v)); }

// scores[g][t] = q[g] . keys[t] for G heads that share the keys, two positions at a time: each is widened once.
INLINE void score(const u32 G, const f32 *q, const int16_t *keys, const f32 *scales, u32 size, u32 count,
                  f32 (*scores)[PAGE]) {
  for (u32 t = 0; t < count; t += 2, keys += 2 * size) {
    v128_t sums[4][2];
#pragma unroll
    for (u32 g = 0; g < G; g++) sums[g][0] = sums[g][1] = wasm_f32x4_const_splat(0);
    for (u32 i = 0; i < size; i += 8) {
      // With an odd count the last one is beside the point: a place in the same page.
      const v128_t one = load(keys + i), two = load(keys + size + i);
      const v128_t a = low4(one), b = high4(one), c = low4(two), d = high4(two);
#pragma unroll
      for (u32 g = 0; g < G; g++) {
        const v128_t low = load(q + g * size + i), high = load(q + g * size + i + 4);
        sums[g][0] = madd(a, low, madd(b, high, sums[g][0]));
        sums[g][1] = madd(c, low, madd(d, high, sums[g][1]));
      }
    }
#pragma unroll
    for (u32 g = 0; g < G; g++) {
      scores[g][t] = sum4(sums[g][0]) * scales[t];
      scores[g][t + 1] = sum4(sums[g][1]) * scales[t + 1];
    }
  }
}

// values[g] += sum_t weights[g][t] * vs[t], eight dimensions at a time: the sums stay in registers. Positions whose weights
// are too small to show beside the largest, which is 1, are left out: in a long text those are most.
INLINE void weigh(const u32 G, f32 (*weights)[PAGE], const int16_t *vs, const f32 *scales, u32 size, u32 count, f32 *values) {
  u32 places[PAGE], kept = 0;
  for (u32 t = 0; t < count; t++) {
    f32 most = weights[0][t];
    for (u32 g = 1; g < G; g++) most = weights[g][t] > most ? weights[g][t] : most;
    places[kept] = t;
    kept += most > 1e-9f;
    for (u32 g = 0; g < G; g++) weights[g][t] *= scales[t];
  }
  if (!kept) return;
  for (u32 i = 0; i < size; i += 8) {
    v128_t low[4], high[4];
#pragma unroll
    for (u32 g = 0; g < G; g++) {
      low[g] = load(values + g * size + i);
      high[g] = load(values + g * size + i + 4);
    }
    for (u32 k = 0; k < kept; k++) {
      const u32 t = places[k];
      const v128_t packed = load(vs + t * size + i), a = low4(packed), b = high4(packed);
#pragma unroll
      for (u32 g = 0; g < G; g++) {
        const v128_t weight = splat4(&weights[g][t]);
        low[g] = madd(a, weight, low[g]);
        high[g] = madd(b, weight, high[g]);
      }
    }
#pragma unroll
    for (u32 g = 0; g < G; g++) {
      wasm_v128_store(values + g * size + i, low[g]);
      wasm_v128_store(values + g * size + i + 4, high[g]);
    }
  }
}

// Positions begin .. end - 1 for the query heads of one kv head. q and values: [group][head_dim].
static void attend(const Cache *k, const f32 *q, u32 slot, u32 kv_head, u32 begin, u32 end, f32 *values, Softmax *softmax) {
  const u32 group = k->heads / k->kv_heads, size = k->head_dim;
  f32 scores[MOST_GROUP][PAGE];
  for (u32 g = 0; g < group; g++) softmax[g] = (Softmax){-1e30f, 0};
  for (u32 i = 0; i < group * size; i += 4) wasm_v128_store(values + i, wasm_f32x4_const_splat(0));
  for (u32 first = begin; first < end;) {
    const u32 t0 = first % PAGE, count = min_u(end - first, PAGE - t0);
    const int16_t *keys = (int16_t *)head_page(k, slot, first, kv_head);
    const f32 *scales = (f32 *)(keys + 2 * PAGE * size) + t0;
    const int16_t *vs = keys + (PAGE + t0) * size;
    keys += t0 * size;
    for (u32 g = 0, some; g < group; g += some) {
      some = min_u(4, group - g);
      switch (some) {
        case 1: score(1, q + g * size, keys, scales, size, count, &scores[g]); break;
        case 2: score(2, q + g * size, keys, scales, size, count, &scores[g]); break;
        case 3: score(3, q + g * size, keys, scales, size, count, &scores[g]); break;
        default: score(4, q + g * size, keys, scales, size, count, &scores[g]);
      }
    }
    const u32 padded = (count + 3) / 4 * 4;
    for (u32 g = 0; g < group; g++) {
      f32 largest = softmax[g].largest;
      for (u32 t = 0; t < count; t++) largest = scores[g][t] > largest ? scores[g][t] : largest;
      for (u32 t = count; t < padded; t++) scores[g][t] = -1e30f;
      const f32 shrink = exp1(softmax[g].largest - largest);
      v128_t total = wasm_f32x4_const_splat(0);
      for (u32 t = 0; t < padded; t += 4) {
        const v128_t weight = exp4(wasm_f32x4_sub(load(&scores[g][t]), wasm_f32x4_splat(largest)));
        total = wasm_f32x4_add(total, weight);
        wasm_v128_store(&scores[g][t], weight);
      }
      softmax[g] = (Softmax){largest, softmax[g].total * shrink + sum4(total)};
      if (shrink != 1)
        for (u32 i = 0; i < size; i += 4)
          wasm_v128_store(values + g * size + i, wasm_f32x4_mul(load(values + g * size + i), wasm_f32x4_splat(shrink)));
    }
    for (u32 g = 0, some; g < group; g += some) {
      some = min_u(4, group - g);
      switch (some) {
        case 1: weigh(1, &scores[g], vs, scales + PAGE, size, count, values + g * size); break;
        case 2: weigh(2, &scores[g], vs, scales + PAGE, size, count, values + g * size); break;
        case 3: weigh(3, &scores[g], vs, scales + PAGE, size, count, values + g * size); break;
        default: weigh(4, &scores[g], vs, scales + PAGE, size, count, values + g * size);
      }
    }
    first += count;
  }
}

INLINE void divide(f32 *values, u32 size, f32 total) {
  for (u32 i = 0; i < size; i++) values[i] /= total;
}

// out[m, h] = softmax(q[m, h] . k / sqrt(head_dim)) v over positions 0 .. position[m]
// One row: each worker takes some of the positions, then the parts are merged. Many: each takes some (row, kv head).
// a: q, out, parts (for each worker heads * (head_dim + 2) floats), unused, then as rope_append's
void attention(const Op *op, const Context *c) {
  const Cache k = cache_of(op, 4);
  const u32 group = k.heads / k.kv_heads, size = k.head_dim, width = k.heads * size;
  const f32 *q = at(op->a[0]);
  f32 *out = at(op->a[1]);
  Softmax softmax[MOST_GROUP];
  if (c->m > 1 || c->workers == 1) {
    u32 mine = 0;
    for (u32 item; (item = next_chunk(c->workers, 1, &mine)) < c->m * k.kv_heads;) {
      const u32 m = item / k.kv_heads, h = item % k.kv_heads, first = m * width + h * group * size;
      const Row row = c->state->rows[m];
      attend(&k, q + first, row.slot, h, 0, row.position + 1, out + first, softmax);
      for (u32 g = 0; g < group; g++) divide(out + first + g * size, size, softmax[g].total);
    }
    return;
  }
  const Row row = c->state->rows[0];
  const u32 length = row.position + 1, part_floats = k.heads * (size + 2);
  f32 *parts = at(op->a[2]), *mine = parts + c->worker * part_floats;
  for (u32 h = 0; h < k.kv_heads; h++) {
    const u32 begin = (u32)((uint64_t)length * c->worker / c->workers), end = (u32)((uint64_t)length * (c->worker + 1) / c->workers);
    attend(&k, q + h * group * size, row.slot, h, begin, end, mine + h * group * size, softmax);
    for (u32 g = 0; g < group; g++) {
      mine[width + 2 * (h * group + g)] = softmax[g].largest;
      mine[width + 2 * (h * group + g) + 1] = softmax[g].total;
    }
  }
  if (!barrier(c->workers)) return;
  for (u32 h = c->worker; h < k.heads; h += c->workers) {
    f32 largest = -1e30f, total = 0;
    for (u32 w = 0; w < c->workers; w++) {
      const f32 other = parts[w * part_floats + width + 2 * h];
      largest = other > largest ? other : largest;
    }
    f32 *to = out + h * size;
    for (u32 i = 0; i < size; i++) to[i] = 0;
    for (u32 w = 0; w < c->workers; w++) {
      const f32 *part = parts + w * part_floats;
      const f32 share = exp1(part[width + 2 * h] - largest);
      total += part[width + 2 * h + 1] * share;
      for (u32 i = 0; i < size; i++) to[i] += part[h * size + i] * share;
    }
    divide(to, size, total);
  }
}
