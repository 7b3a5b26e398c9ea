// RoPE, the pages of keys and values, and attention with an online softmax, a page at a time.
#include "pages.h"

enum { PART = 128, MOST_GROUP = 16, QUERY_OFFSET = 8192 };
// Query heads of a tile, which share the keys and values that they read: as many as fit into the registers.
#ifdef PLAIN_SIMD
enum { HEAD_TILE = 2 };
#define HEAD_TILES(form) PRODUCTS(1, form) PRODUCTS(2, form)
#else
enum { HEAD_TILE = 3 };
#define HEAD_TILES(form) PRODUCTS(1, form) PRODUCTS(2, form) PRODUCTS(3, form)
#endif

// The first position that a row sees.
INLINE u32 first_seen(const Layer *k, u32 position) {
  return k->window && position >= k->window ? position + 1 - k->window : 0;
}

// The last position that a row sees.
INLINE u32 last_seen(const Row *row) { return row->position + row->ahead; }

// Stores x as integers of two bytes, of which pairs are 16 bytes apart (keys) or fours are `four` bytes apart (values);
// returns the scale.
static f32 store_whole(const f32 *x, u32 size, uint8_t *out, u32 four) {
  const f32 largest = abs_max_of(x, size), limit = 127 * 128;
  const v128_t inverse = wasm_f32x4_splat(largest > 0 ? limit / largest : 0);
  for (u32 i = 0; i < size; i += 4) {
    i32 whole[4];
    wasm_v128_store(whole, whole4(load(x + i), inverse));
    for (u32 j = 0; j < 4; j++) {
      uint8_t *to = four ? out + i / 4 * four + j * 4 : out + (i + j) / 2 * 16 + j % 2 * 2;
      *(int16_t *)to = (int16_t)whole[j];
    }
  }
  return largest / limit;
}

// Stores x as integers of one or two bytes; returns the scale. Four numbers are `lane` bytes apart, the next four
// begin at `second`, and each pair of fours `pair` bytes after the one before.
static f32 store_vector(const f32 *x, u32 size, u32 limbs, int8_t *out, u32 lane, u32 second, u32 pair, i32 *sum) {
  const f32 largest = abs_max_of(x, size), limit = limbs == 1 ? 127 : 127 * 128;
  const v128_t inverse = wasm_f32x4_splat(largest > 0 ? limit / largest : 0);
  *sum = 0;
  for (u32 i = 0; i < size; i += 4) {
    int8_t *to = out + i / 8 * pair + i % 8 / 4 * second;
    i32 whole[4];
    wasm_v128_store(whole, whole4(load(x + i), inverse));
    for (u32 j = 0; j < 4; j++) {
      const i32 first = limbs == 1 ? whole[j] : (whole[j] + 64) >> 7;
      to[j * lane] = (int8_t)first;
      if (limbs == 2) to[16 + j * lane] = (int8_t)(whole[j] - 128 * first);
      *sum += whole[j];
    }
  }
  return largest / limit;
}

// Normalizes a head, if there are norm weights, and rotates it. a: angles, pairs that rotate, 1 if these are neighbours
INLINE void turn(const f32 *x, const u32 *a, u32 position, const f32 *weight, f32 eps, u32 size, f32 *out) {
  f32 normed[MOST_HEAD_DIM];
  if (weight) normalize(x, weight, size, eps, normed), x = normed;
  rotate(x, (f32 *)at(a[0]) + position * a[1] * 2, a[1], a[2], size, out);
}

// The values of a head, padded with zeros up to `room`: in place, or in `padded`.
INLINE const f32 *with_zeros(const f32 *x, u32 size, u32 room, f32 *padded) {
  if (size == room) return x;
  for (u32 i = 0; i < room; i++) padded[i] = i < size ? x[i] : 0;
  return padded;
}

// q_out = rope(norm(q)) * scale; the pages get rope(norm(k)) and v. Norms and rotation are optional, and so are k and v
// (an address of 0).
// a: q, k, v, floats from row to row of q, and of k and v, q_out, angles, pairs that rotate, 1 if these are neighbours, norm
//    weights of a head of q or 0, those of k, eps, layer, weights of v (ones) or 0
void rope_append(const Op *op, const Context *c) {
  const u32 *a = op->a;
  const Layer k = *(Layer *)at(a[12]);
  const u32 size = k.size, room = k.head_dim;
  const f32 eps = real(a[11]);
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const Row row = c->state->rows[m];
    const f32 *q = (f32 *)at(a[0]) + m * a[3], *key = (f32 *)at(a[1]) + m * a[4], *value = (f32 *)at(a[2]) + m * a[4];
    f32 *out = (f32 *)at(a[5]) + m * k.heads * room;
    for (u32 h = 0; h < k.heads; h++, q += size, out += room) {
      turn(q, a + 6, row.position, at(a[9]), eps, size, out);
      for (u32 i = 0; i < size; i++) out[i] *= k.scale;
      for (u32 i = size; i < room; i++) out[i] = 0;
    }
    if (!a[1]) continue;
    const u32 t = row.position % PAGE;
    // A demoted page is full: it already contains what a row would write there again.
    for (u32 h = 0; h < k.kv_heads && page_tier(&k, row.slot, row.position) == HOT; h++, key += size, value += size) {
      int8_t *keys = (int8_t *)head_page(&k, row.slot, row.position, h), *values = keys + k.limbs * PAGE * room;
      f32 *scales = (f32 *)(values + k.limbs * PAGE * room), rotated[MOST_HEAD_DIM], padded[MOST_HEAD_DIM];
      i32 sum;
      turn(key, a + 6, row.position, at(a[10]), eps, size, rotated);
      const f32 *stored = with_zeros(rotated, size, room, padded);
      const u32 quad = t / 4, at_key = k.limbs == 1 ? quad / 2 * 8 * room + quad % 2 * 16 : quad * 8 * room;
      if (WHOLE(k.limbs)) {
        scales[t] = store_whole(stored, room, (uint8_t *)keys + at_key + t % 4 * 4, 0);
        scales[PAGE + t] = 0;
      } else {
        scales[t] = store_vector(stored, room, k.limbs, keys + at_key + t % 4 * 4, 1, 32, 64, &sum);
        scales[PAGE + t] = scales[t] * (f32)sum * QUERY_OFFSET;
      }
      const f32 *v = value;
      if (a[13]) normalize(value, at(a[13]), size, eps, rotated), v = rotated;
      stored = with_zeros(v, size, room, padded);
      if (WHOLE(k.limbs)) {
        scales[2 * PAGE + t] = store_whole(stored, room, (uint8_t *)values + t / 2 * 16 + t % 2 * 2, 8 * PAGE);
      } else {
        scales[2 * PAGE + t] = store_vector(stored, room, k.limbs, values + quad * 32 + t % 4, 4, k.limbs == 1 ? 16 : 8 * PAGE,
                                            k.limbs == 1 ? 8 * PAGE : 16 * PAGE, &sum);
      }
    }
  }
}

// A head's softmax over some positions: out = values / total.
typedef struct { f32 largest, total; } Softmax;

// A mask of the lanes whose position t + lane is before `count`.
INLINE v128_t before(u32 t, u32 count) {
  return wasm_i32x4_lt(wasm_i32x4_make(0, 1, 2, 3), wasm_i32x4_splat((i32)(count - t)));
}

// Stores four numbers of 14 bits as bytes of 7 bits: the four high ones, then the four low ones.
INLINE void pack4(v128_t numbers, uint8_t *to) {
  const v128_t both = wasm_i16x8_narrow_i32x4(wasm_u32x4_shr(numbers, 7), wasm_v128_and(numbers, wasm_i32x4_const_splat(127)));
  wasm_v128_store64_lane(to, wasm_u8x16_narrow_i16x8(both, both), 0);
}

// out[g][o] = sum_i data[o][i] * numbers[g][i], four o in a vector's lanes and four i in a lane's bytes.
// data: [o][room / 4][2][16 bytes], numbers: [i / 4][g] packed by pack4.
INLINE void products(const u32 G, const u32 P, const uint8_t *data, u32 outer, u32 inner, u32 room, const uint8_t *numbers,
                     f32 *out, u32 stride) {
  const u32 WIDE = P == 1 ? 2 : 1;  // as many sums as fit the registers
  for (u32 o = 0; o < outer; o += 4 * WIDE, data += room * 8) {
    const uint8_t *from = data, *number = numbers;
    Acc acc[HEAD_TILE][2][4];
#pragma unroll
    for (u32 g = 0; g < G; g++)
#pragma unroll
      for (u32 w = 0; w < WIDE; w++)
#pragma unroll
        for (u32 j = 0; j < 2 * P; j++) acc[g][w][j] = acc_zero();
    for (u32 i = 0; i < inner; i += 4, from += 32, number += G * 8) {
      v128_t x[2][2];
#pragma unroll
      for (u32 w = 0; w < WIDE; w++)
#pragma unroll
        for (u32 p = 0; p < P; p++) x[w][p] = load(from + (w + p) * 16);
#pragma unroll
      for (u32 g = 0; g < G; g++)
#pragma unroll
        for (u32 b = 0; b < 2; b++) {
          const v128_t n = splat4(number + g * 8 + b * 4);
#pragma unroll
          for (u32 w = 0; w < WIDE; w++)
#pragma unroll
            for (u32 p = 0; p < P; p++) {
              acc[g][w][2 * p + b] = acc_dot(x[w][p], n, acc[g][w][2 * p + b]);
              KEEP(acc[g][w][2 * p + b]);
            }
        }
    }
#pragma unroll
    for (u32 g = 0; g < G; g++)
#pragma unroll
      for (u32 w = 0; w < WIDE; w++) {
        v128_t sum[2];
#pragma unroll
        for (u32 p = 0; p < P; p++)
          sum[p] = madd(wasm_f32x4_convert_i32x4(acc_rows(acc[g][w][2 * p])), wasm_f32x4_const_splat(128),
                        wasm_f32x4_convert_i32x4(acc_rows(acc[g][w][2 * p + 1])));
        if (P == 2) sum[0] = madd(sum[0], wasm_f32x4_const_splat(128), sum[1]);
        wasm_v128_store(out + g * stride + o + 4 * w, sum[0]);
      }
  }
}

// The same for whole numbers: data [o][room / 2][16 bytes], numbers [i / 2][g] of 16 bits by pack_whole4. Four sums of two products
// of 14 bits, and a sign each, fit 32 bits.
INLINE void whole_products(const u32 G, const uint8_t *data, u32 outer, u32 inner, u32 room, const uint8_t *numbers, f32 *out,
                           u32 stride) {
  for (u32 o = 0; o < outer; o += 8, data += room * 16) {
    v128_t total[HEAD_TILE][2];
#pragma unroll
    for (u32 g = 0; g < G; g++) total[g][0] = total[g][1] = wasm_f32x4_const_splat(0);
    for (u32 begin = 0; begin < inner; begin += 8) {
      v128_t acc[HEAD_TILE][2];
#pragma unroll
      for (u32 g = 0; g < G; g++) acc[g][0] = acc[g][1] = wasm_i32x4_const_splat(0);
#pragma unroll
      for (u32 i = begin; i < begin + 8; i += 2) {
        const v128_t one = load(data + i * 8), two = load(data + room * 8 + i * 8);
#pragma unroll
        for (u32 g = 0; g < G; g++) {
          const v128_t n = splat4(numbers + (i / 2 * G + g) * 4);
          acc[g][0] = wasm_i32x4_add(acc[g][0], wasm_i32x4_dot_i16x8(one, n));
          acc[g][1] = wasm_i32x4_add(acc[g][1], wasm_i32x4_dot_i16x8(two, n));
          __asm__ volatile("" : "+r"(acc[g][0]), "+r"(acc[g][1]));
        }
      }
#pragma unroll
      for (u32 g = 0; g < G; g++)
#pragma unroll
        for (u32 w = 0; w < 2; w++) total[g][w] = wasm_f32x4_add(total[g][w], wasm_f32x4_convert_i32x4(acc[g][w]));
    }
#pragma unroll
    for (u32 g = 0; g < G; g++)
#pragma unroll
      for (u32 w = 0; w < 2; w++) wasm_v128_store(out + g * stride + o + 4 * w, total[g][w]);
  }
}

// Stores four numbers of 16 bits as two pairs, which are `apart` bytes apart.
INLINE void pack_whole4(v128_t numbers, uint8_t *to, u32 apart) {
  const v128_t whole = wasm_i16x8_narrow_i32x4(numbers, numbers);
  wasm_v128_store32_lane(to, whole, 0);
  wasm_v128_store32_lane(to + apart, whole, 1);
}

// Stores four numbers between -8191 and 8191 as signed bytes: 128 * the first four + the second four.
INLINE void pack_signed4(v128_t numbers, uint8_t *to) {
  const v128_t first = wasm_i32x4_shr(wasm_i32x4_add(numbers, wasm_i32x4_const_splat(64)), 7);
  const v128_t both = wasm_i16x8_narrow_i32x4(first, wasm_i32x4_sub(numbers, wasm_i32x4_shl(first, 7)));
  wasm_v128_store64_lane(to, wasm_i8x16_narrow_i16x8(both, both), 0);
}

// The same for codes, BYTES or HALF_BYTES, and numbers packed by pack_signed4.
INLINE void code_products(const u32 G, const u32 half, const uint8_t *data, u32 outer, u32 inner, u32 room, const uint8_t *numbers,
                          f32 *out, u32 stride) {
  const v128_t mask = wasm_i8x16_const_splat(15);
  for (u32 o = 0; o < outer; o += 8, data += room * (half ? 4 : 8))
    // 16 pairs of a signed byte and a 4-bit code fit the 16-bit sums of some CPUs.
    for (u32 begin = 0; begin < inner; begin += 64) {
      const u32 end = min_u(inner, begin + 64);
      Acc acc[HEAD_TILE][2][2];
#pragma unroll
      for (u32 g = 0; g < G; g++)
#pragma unroll
        for (u32 w = 0; w < 2; w++)
#pragma unroll
          for (u32 b = 0; b < 2; b++) acc[g][w][b] = acc_zero();
      for (u32 i = begin; i < end; i += 4) {
        v128_t x[2] = {load(data + i * (half ? 4 : 8))};
        if (half) x[1] = wasm_v128_and(wasm_u16x8_shr(x[0], 4), mask), x[0] = wasm_v128_and(x[0], mask);
        else x[1] = load(data + i * 8 + 16);
#pragma unroll
        for (u32 g = 0; g < G; g++)
#pragma unroll
          for (u32 b = 0; b < 2; b++) {
            const v128_t n = splat4(numbers + (i / 4 * G + g) * 8 + b * 4);
#pragma unroll
            for (u32 w = 0; w < 2; w++) {
              acc[g][w][b] = half ? codes_dot(n, x[w], acc[g][w][b]) : acc_dot(n, x[w], acc[g][w][b]);
              KEEP(acc[g][w][b]);
            }
          }
      }
#pragma unroll
      for (u32 g = 0; g < G; g++)
#pragma unroll
        for (u32 w = 0; w < 2; w++) {
          const v128_t first = half ? codes_rows(acc[g][w][0]) : acc_rows(acc[g][w][0]);
          const v128_t second = half ? codes_rows(acc[g][w][1]) : acc_rows(acc[g][w][1]);
          v128_t sum = wasm_f32x4_convert_i32x4(wasm_i32x4_add(wasm_i32x4_shl(first, 7), second));
          f32 *to = out + g * stride + o + 4 * w;
          if (begin) sum = wasm_f32x4_add(sum, load(to));
          wasm_v128_store(to, sum);
        }
    }
}

// A separate function for each number of heads and each form.
#define PRODUCTS(G, form) \
  static __attribute__((noinline)) void products_##G##_##form(const uint8_t *data, u32 outer, u32 inner, u32 room, \
                                                              const uint8_t *numbers, f32 *out, u32 stride) { \
    if (WHOLE(form)) whole_products(G, data, outer, inner, room, numbers, out, stride); \
    else if (form <= TWO_LIMBS) products(G, form, data, outer, inner, room, numbers, out, stride); \
    else code_products(G, form == HALF_BYTES, data, outer, inner, room, numbers, out, stride); \
  }
HEAD_TILES(ONE_LIMB)
HEAD_TILES(TWO_LIMBS)
HEAD_TILES(BYTES)
HEAD_TILES(HALF_BYTES)
#undef PRODUCTS

static void products_of(u32 G, u32 form, const uint8_t *data, u32 outer, u32 inner, u32 room, const uint8_t *numbers, f32 *out,
                        u32 stride) {
  switch (G + 4 * form) {
#define PRODUCTS(G, form) \
  case G + 4 * form: products_##G##_##form(data, outer, inner, room, numbers, out, stride); break;
    HEAD_TILES(ONE_LIMB)
    HEAD_TILES(TWO_LIMBS)
    HEAD_TILES(BYTES)
    HEAD_TILES(HALF_BYTES)
#undef PRODUCTS
  }
}

// Packs x[i] * scales[i] as integers in units of the returned scale, every G * 8 bytes; `constant` is the sum of
// x[i] * offsets[i].
static f32 pack_scaled(const f32 *x, const f32 *scales, const f32 *offsets, u32 count, u32 G, uint8_t *to, f32 *constant) {
  f32 y[MOST_HEAD_DIM];
  v128_t most = wasm_f32x4_const_splat(0), sum = most;
  for (u32 i = 0; i < count; i += 4) {
    const v128_t four = load(x + i), scaled = wasm_f32x4_mul(four, load(scales + i));
    sum = madd(four, load(offsets + i), sum);
    most = wasm_f32x4_pmax(most, wasm_f32x4_abs(scaled));
    wasm_v128_store(y + i, scaled);
  }
  *constant = sum4(sum);
  const f32 largest = max4(most);
  const v128_t inverse = wasm_f32x4_splat(largest > 0 ? (QUERY_OFFSET - 1) / largest : 0);
  for (u32 i = 0; i < count; i += 4) pack_signed4(whole4(load(y + i), inverse), to + i / 4 * G * 8);
  return largest / (QUERY_OFFSET - 1);
}

// Brings a page into the cache by reading a word of each of its cache lines. These loads are independent, so they get
// the memory's full bandwidth; without them the loops below got half of it. `bytes` is a multiple of 64.
static __attribute__((noinline)) void prefetch(const uint8_t *from, u32 bytes) {
  v128_t any = wasm_i32x4_const_splat(0);
  u32 i = 0;
  for (; i + 256 <= bytes; i += 256)
    for (u32 line = 0; line < 256; line += 64) any = wasm_v128_or(any, load(from + i + line));
  for (; i < bytes; i += 64) any = wasm_v128_or(any, load(from + i));
  volatile i32 used = wasm_i32x4_extract_lane(any, 0);
  (void)used;
}

// Attention over positions begin .. end - 1, for G query heads of one kv head. q and values: [G][head_dim]. Pages before
// that of `begin` are not read.
static void attend(const u32 G, const Layer *k, const f32 *q, u32 slot, u32 kv_head, u32 begin, u32 end, f32 *values,
                   Softmax *softmax) {
  const u32 size = k->head_dim;
  f32 query_scale[HEAD_TILE], scores[HEAD_TILE][PAGE], sums[HEAD_TILE][MOST_HEAD_DIM], share[HEAD_TILE], shrink[HEAD_TILE];
  f32 constant[HEAD_TILE] = {0}, parts[2 * MOST_HEAD_DIM + 2 * PAGE];
  uint8_t query[HEAD_TILE * MOST_HEAD_DIM * 2], weights[HEAD_TILE * PAGE * 2];
  u32 last_tier = TIERS;
  for (u32 g = 0; g < G; g++) softmax[g] = (Softmax){-1e30f, 0};
  for (u32 i = 0; i < G * size; i += 4) wasm_v128_store(values + i, wasm_f32x4_const_splat(0));
  for (u32 first = begin / PAGE * PAGE; first < end; first += PAGE) {
    const u32 count = min_u(end - first, PAGE), padded = (count + 7) / 8 * 8, unseen = begin > first ? begin - first : 0;
    const u32 tier = page_tier(k, slot, first), form = tier == HOT ? k->limbs : tier == WARM ? BYTES : HALF_BYTES;
    // Bytes of keys for each dim, and of values: limbs or codes.
    const u32 plane = PAGE * size * (tier == HOT ? k->limbs : 2) / (tier == HOT ? 1 : tier == WARM ? 2 : 4);
    const uint8_t *keys = head_page(k, slot, first, kv_head), *vs = keys + plane;
    const f32 *scales = (f32 *)(vs + plane);
    prefetch(keys, k->head_bytes[tier]);
    if (tier == HOT) {
      if (last_tier != HOT)
        for (u32 g = 0; g < G; g++) {
          const f32 largest = abs_max_of(q + g * size, size);
          query_scale[g] = largest / (QUERY_OFFSET - 1);
          constant[g] = 0;
          const v128_t inverse = wasm_f32x4_splat(largest > 0 ? (QUERY_OFFSET - 1) / largest : 0);
          for (u32 i = 0; i < size; i += 4) {
            const v128_t whole = whole4(load(q + g * size + i), inverse);
            if (WHOLE(k->limbs)) pack_whole4(whole, query + (i / 2 * G + g) * 4, 4 * G);
            else pack4(wasm_i32x4_add(whole, wasm_i32x4_const_splat(QUERY_OFFSET)), query + (i / 4 * G + g) * 8);
          }
        }
    } else {
      for (u32 i = 0; i < 2 * (size + PAGE); i += 4) wasm_v128_store(parts + i, halves4(wasm_v128_load64_zero((uint16_t *)scales + i)));
      for (u32 g = 0; g < G; g++) query_scale[g] = pack_scaled(q + g * size, parts, parts + size, size, G, query + g * 8, constant + g);
    }
    last_tier = tier;
    products_of(G, form, keys, padded, size, size, query, scores[0], PAGE);
    for (u32 g = 0; g < G; g++) {
      f32 *score = scores[g];
      const f32 cap = k->softcap;
      const v128_t scale = wasm_f32x4_splat(query_scale[g]), nothing = wasm_f32x4_const_splat(-1e30f);
      v128_t most = wasm_f32x4_splat(softmax[g].largest), total = wasm_f32x4_const_splat(0), heaviest = total;
      for (u32 t = 0; t < padded; t += 4) {
        v128_t s = load(score + t);
        if (tier == HOT) s = wasm_f32x4_mul(wasm_f32x4_sub(wasm_f32x4_mul(s, load(scales + t)), load(scales + PAGE + t)), scale);
        else s = madd(s, scale, wasm_f32x4_splat(constant[g]));
        if (cap > 0) s = soft_cap4(s, cap);
        // Ignore positions before the window. They get no weight, since each page has a position with a score.
        if (t < unseen) s = wasm_v128_bitselect(nothing, s, before(t, unseen));
        // Ignore the rest of the page after the last position.
        if (t + 4 > count) s = wasm_v128_bitselect(s, nothing, before(t, count));
        most = wasm_f32x4_pmax(most, s);
        wasm_v128_store(score + t, s);
      }
      const f32 largest = max4(most);
      for (u32 t = 0; t < padded; t += 4) {
        v128_t weight = exp4(wasm_f32x4_sub(load(score + t), wasm_f32x4_splat(largest)));
        total = wasm_f32x4_add(total, weight);
        if (tier == HOT) weight = wasm_f32x4_mul(weight, load(scales + 2 * PAGE + t));
        if (t + 4 > count) weight = wasm_v128_and(weight, before(t, count));
        heaviest = wasm_f32x4_pmax(heaviest, weight);
        wasm_v128_store(score + t, weight);
      }
      shrink[g] = exp1(softmax[g].largest - largest);
      softmax[g] = (Softmax){largest, softmax[g].total * shrink[g] + sum4(total)};
      if (tier != HOT) {
        const f32 *value_scales = parts + 2 * size;
        share[g] = pack_scaled(score, value_scales, value_scales + PAGE, padded, G, weights + g * 8, constant + g);
        continue;
      }
      const f32 whole = max4(heaviest);
      share[g] = whole / 16383;
      const v128_t inverse = wasm_f32x4_splat(whole > 0 ? 16383 / whole : 0);
      for (u32 t = 0; t < padded; t += 4) {
        if (WHOLE(k->limbs)) pack_whole4(whole4(load(score + t), inverse), weights + (t / 2 * G + g) * 4, 4 * G);
        else pack4(whole4(load(score + t), inverse), weights + (t / 4 * G + g) * 8);
      }
    }
    products_of(G, form, vs, size, padded, PAGE, weights, sums[0], MOST_HEAD_DIM);
    for (u32 g = 0; g < G; g++) {
      const v128_t old = wasm_f32x4_splat(shrink[g]), scale = wasm_f32x4_splat(share[g]), offset = wasm_f32x4_splat(constant[g]);
      for (u32 i = 0; i < size; i += 4) {
        f32 *value = values + g * size + i;
        const v128_t sum = madd(load(sums[g] + i), scale, wasm_f32x4_mul(load(value), old));
        wasm_v128_store(value, tier == HOT ? sum : wasm_f32x4_add(sum, offset));
      }
    }
  }
}

static void attend_group(const Layer *k, const f32 *q, u32 slot, u32 kv_head, u32 begin, u32 end, f32 *values, Softmax *softmax) {
  const u32 group = k->heads / k->kv_heads;
  for (u32 g = 0, count; g < group; g += count, q += count * k->head_dim, values += count * k->head_dim, softmax += count) {
    count = min_u(HEAD_TILE, group - g);
    attend(count, k, q, slot, kv_head, begin, end, values, softmax);
  }
}

INLINE void divide(f32 *values, u32 size, f32 total) {
  for (u32 i = 0; i < size; i++) values[i] /= total;
}

// Adds the result for a part of the positions, or copies it if it is the first.
static void add_part(f32 *sum, Softmax *softmax, const f32 *part, Softmax of, u32 size, int is_first) {
  const f32 largest = is_first || of.largest > softmax->largest ? of.largest : softmax->largest;
  const f32 shrink = is_first ? 0 : exp1(softmax->largest - largest), share = exp1(of.largest - largest);
  const v128_t old = wasm_f32x4_splat(shrink), scale = wasm_f32x4_splat(share);
  u32 i = 0;
  for (; i + 4 <= size; i += 4) {
    const v128_t more = wasm_f32x4_mul(load(part + i), scale);
    wasm_v128_store(sum + i, is_first ? more : madd(load(sum + i), old, more));
  }
  for (; i < size; i++) sum[i] = part[i] * share + (is_first ? 0 : sum[i] * shrink);
  *softmax = (Softmax){largest, of.total * share + (is_first ? 0 : softmax->total * shrink)};
}

// out[m, h] = softmax(cap(q[m, h] . k)) v over positions 0 .. last_seen(m), without those before a window.
// With many rows, or few positions, each piece of work is a (row, kv head). With one row and many positions it is a
// part of the positions. The parts are always the same and are merged in order, so that the result depends neither
// on the number of workers nor on the other rows.
// a: q (head_dim values a head), out (`size` a head), parts (for each PART positions heads * (head_dim + 2) floats), layer
void attention(const Op *op, const Context *c) {
  const Layer k = *(Layer *)at(op->a[3]);
  const u32 group = k.heads / k.kv_heads, size = k.size, room = k.head_dim, width = k.heads * room;
  const f32 *q = at(op->a[0]);
  f32 *out = at(op->a[1]);
  Softmax softmax[MOST_GROUP];
  const Row last = c->state->rows[c->m - 1];
  const u32 length = last_seen(&last) + 1, seen = first_seen(&k, last.position);
  const u32 first_part = seen / PART, count = (length + PART - 1) / PART - first_part;
  if (c->m > 1 || count == 1) {
    f32 part[MOST_GROUP * MOST_HEAD_DIM];
    for (Work work = work_of(c, c->m * k.kv_heads, 1); next_piece(&work);) {
      const u32 item = work.begin, m = item / k.kv_heads, h = item % k.kv_heads, head = m * k.heads + h * group;
      const Row row = c->state->rows[m];
      Softmax all[MOST_GROUP];
      u32 begin = first_seen(&k, row.position);
      for (u32 end, is_first = 1; begin <= last_seen(&row); begin = end, is_first = 0) {
        end = min_u(last_seen(&row) + 1, (begin / PART + 1) * PART);
        attend_group(&k, q + head * room, row.slot, h, begin, end, part, softmax);
        for (u32 g = 0; g < group; g++)
          add_part(out + (head + g) * size, all + g, part + g * room, softmax[g], size, is_first);
      }
      for (u32 g = 0; g < group; g++) divide(out + (head + g) * size, size, all[g].total);
    }
    return;
  }
  const u32 slot = c->state->rows[0].slot, part_floats = k.heads * (room + 2);
  f32 *parts = at(op->a[2]);
  for (Work work = work_of(c, count * k.kv_heads, 1); next_piece(&work);) {
    const u32 item = work.begin, h = item / count, begin = (first_part + item % count) * PART;
    f32 *part = parts + item % count * part_floats;
    attend_group(&k, q + h * group * room, slot, h, max_u(seen, begin), min_u(length, begin + PART), part + h * group * room,
                 softmax);
    for (u32 g = 0; g < group; g++) {
      part[width + 2 * (h * group + g)] = softmax[g].largest;
      part[width + 2 * (h * group + g) + 1] = softmax[g].total;
    }
  }
  if (!barrier(c->workers)) return;
  for (u32 h = c->worker; h < k.heads; h += c->workers) {
    Softmax all;
    for (u32 p = 0; p < count; p++) {
      const f32 *part = parts + p * part_floats, *of = part + width + 2 * h;
      add_part(out + h * size, &all, part + h * room, (Softmax){of[0], of[1]}, size, !p);
    }
    divide(out + h * size, size, all.total);
  }
}
