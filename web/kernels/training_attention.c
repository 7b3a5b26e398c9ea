// Attention within a pack, and its gradients: scores exist only for a block of rows by a block of keys at a time. For
// the gradients they are recomputed, from the logarithms of their sums (arXiv 2205.14135).
#include "training.h"

enum { ROWS = 32, KEYS = 32, MOST_HEAD_DIM = 256, MOST_GROUP = 16 };

// The parameters of a layer. A window or softcap of 0 means none.
typedef struct {
  u32 heads, kv_heads, head_dim, window;
  f32 softcap, scale;
  u32 pack;  // Pack, then from PACK_ROWS on starts[room], positions[room]
  u32 room;
} PackedLayer;

typedef struct {
  PackedLayer k;
  u32 rows, prefix, width, kv_width;
  const u32 *starts, *positions;
  const f32 *queries, *keys, *values;
} Packed;

static Packed packed(u32 layer, u32 q, u32 k, u32 v) {
  Packed p = {.k = *(PackedLayer *)at(layer), .queries = at(q), .keys = at(k), .values = at(v)};
  const Pack *pack = at(p.k.pack);
  p.rows = pack->rows, p.prefix = pack->prefix;
  p.width = p.k.heads * p.k.head_dim, p.kv_width = p.k.kv_heads * p.k.head_dim;
  p.starts = (u32 *)(pack + 1), p.positions = p.starts + p.k.room;
  return p;
}

// Returns whether a row from i on, of ROWS rows, sees a key from j on, of KEYS keys.
INLINE int meets(const Packed *p, u32 i, u32 j) {
  const u32 last = min_u(i + ROWS, p->rows) - 1;
  return j <= last && (j < p->prefix || j + KEYS > p->starts[i]);
}

// The lanes whose keys j .. j + 3 row i sees.
INLINE v128_t seen4(const Packed *p, u32 i, u32 j) {
  const v128_t key = wasm_i32x4_add(wasm_i32x4_make(0, 1, 2, 3), wasm_i32x4_splat((i32)j));
  const v128_t own = wasm_v128_or(wasm_i32x4_ge(key, wasm_i32x4_splat((i32)p->starts[i])),
                                  wasm_i32x4_lt(key, wasm_i32x4_splat((i32)p->prefix)));
  v128_t seen = wasm_v128_and(own, wasm_i32x4_le(key, wasm_i32x4_splat((i32)i)));
  if (p->k.window) {
    const v128_t far = wasm_i32x4_sub(wasm_i32x4_splat((i32)p->positions[i]), load(p->positions + j));
    seen = wasm_v128_and(seen, wasm_i32x4_lt(far, wasm_i32x4_splat((i32)p->k.window)));
  }
  return seen;
}

#define NOTHING -1e30f
#define LEAST -1e29f

// scores[i * KEYS + j] of rows i.. of query head h and keys j..: capped; NOTHING if the key is not seen.
static void score(const Packed *p, u32 i, u32 rows, u32 h, const f32 *keys, u32 j, f32 *scores) {
  const u32 size = p->k.head_dim;
  product(rows, KEYS, size, by_rows(p->queries + i * p->width + h * size, p->width), strips(keys, size), 0, p->k.scale, scores,
          KEYS);
  for (u32 r = 0; r < rows; r++)
    for (u32 t = 0; t < KEYS; t += 4) {
      f32 *s = scores + r * KEYS + t;
      const v128_t capped = p->k.softcap > 0 ? soft_cap4(load(s), p->k.softcap) : load(s);
      wasm_v128_store(s, wasm_v128_bitselect(capped, wasm_f32x4_const_splat(NOTHING), seen4(p, i + r, j + t)));
    }
}

// A worker's scratch: a block's keys and values as strips, and scores.
typedef struct { f32 *keys, *values, *scores, *slopes; } Room;
INLINE Room room_of(const Op *op, const Context *c) {
  f32 *from = scratch_of(op, c);
  return (Room){from, from + KEYS * MOST_HEAD_DIM, from + 2 * KEYS * MOST_HEAD_DIM,
                from + 2 * KEYS * MOST_HEAD_DIM + ROWS * KEYS};
}

static void load_keys(const Packed *p, u32 j, u32 kv_head, const f32 *from, f32 *to) {
  transposed_strips(from + j * p->kv_width + kv_head * p->k.head_dim, p->kv_width, min_u(KEYS, p->rows - j), p->k.head_dim, to);
}

// out = softmax(cap(scale q k^T)) v, and the logarithms of the sums (rows, heads).
// a: layer, q, k, v, out, log_sums; 13: scratch
void packed_attention(const Op *op, const Context *c) {
  const Packed p = packed(op->a[0], op->a[1], op->a[2], op->a[3]);
  const Room room = room_of(op, c);
  const u32 size = p.k.head_dim, group = p.k.heads / p.k.kv_heads, blocks = (p.rows + ROWS - 1) / ROWS;
  f32 *out = at(op->a[4]), *log_sums = at(op->a[5]), largest[MOST_GROUP][ROWS], total[MOST_GROUP][ROWS];
  for (Work work = work_of(c, blocks * p.k.kv_heads, 1); next_piece(&work);) {
    const u32 i = work.begin / p.k.kv_heads * ROWS, kv_head = work.begin % p.k.kv_heads, rows = min_u(ROWS, p.rows - i);
    for (u32 g = 0; g < group; g++)
      for (u32 r = 0; r < rows; r++) {
        largest[g][r] = LEAST, total[g][r] = 0;
        f32 *to = out + (i + r) * p.width + (kv_head * group + g) * size;
        for (u32 d = 0; d < size; d++) to[d] = 0;
      }
    for (u32 j = 0; j < i + rows; j += KEYS) {
      if (!meets(&p, i, j)) continue;
      const u32 keys = min_u(KEYS, p.rows - j);
      load_keys(&p, j, kv_head, p.keys, room.keys);
      for (u32 g = 0; g < group; g++) {
        const u32 h = kv_head * group + g;
        score(&p, i, rows, h, room.keys, j, room.scores);
        f32 *to = out + i * p.width + h * size;
        for (u32 r = 0; r < rows; r++) {
          f32 *s = room.scores + r * KEYS;
          v128_t most = wasm_f32x4_splat(largest[g][r]), sum = wasm_f32x4_const_splat(0);
          for (u32 t = 0; t < KEYS; t += 4) most = wasm_f32x4_pmax(most, load(s + t));
          const f32 now = max4(most);
          for (u32 t = 0; t < KEYS; t += 4) {
            const v128_t share = exp4(wasm_f32x4_sub(load(s + t), wasm_f32x4_splat(now)));
            sum = wasm_f32x4_add(sum, share);
            wasm_v128_store(s + t, share);
          }
          if (now > largest[g][r]) {
            const f32 shrink = exp1(largest[g][r] - now);
            total[g][r] *= shrink;
            for (u32 d = 0; d < size; d++) to[r * p.width + d] *= shrink;
            largest[g][r] = now;
          }
          total[g][r] += sum4(sum);
        }
        product(rows, size, keys, by_rows(room.scores, KEYS), plain(p.values + j * p.kv_width + kv_head * size, p.kv_width), to, 1,
                to, p.width);
      }
    }
    for (u32 g = 0; g < group; g++)
      for (u32 r = 0; r < rows; r++) {
        const u32 h = kv_head * group + g;
        f32 *to = out + (i + r) * p.width + h * size;
        for (u32 d = 0; d < size; d++) to[d] /= total[g][r];
        log_sums[(i + r) * p.k.heads + h] = largest[g][r] + log1(total[g][r]);
      }
  }
}

// The attention weights of a block, and the gradient of the scores: ds = p * (dout v^T - sum(dout * out)), times
// 1 - (s / softcap)^2.
static void slopes_of(const Packed *p, u32 i, u32 rows, u32 h, u32 j, const Room *room, const f32 *dout, const f32 *log_sums,
                      const f32 *dots) {
  const u32 size = p->k.head_dim;
  score(p, i, rows, h, room->keys, j, room->scores);
  product(rows, KEYS, size, by_rows(dout + i * p->width + h * size, p->width), strips(room->values, size), 0, 1, room->slopes, KEYS);
  const v128_t one = wasm_f32x4_const_splat(1), inverse = wasm_f32x4_splat(p->k.softcap > 0 ? 1 / p->k.softcap : 0);
  for (u32 r = 0; r < rows; r++) {
    const v128_t log_sum = wasm_f32x4_splat(log_sums[(i + r) * p->k.heads + h]);
    const v128_t dot = wasm_f32x4_splat(dots[(i + r) * p->k.heads + h]);
    for (u32 t = 0; t < KEYS; t += 4) {
      f32 *s = room->scores + r * KEYS + t, *slope = room->slopes + r * KEYS + t;
      const v128_t capped = load(s), share = exp4(wasm_f32x4_sub(capped, log_sum));
      v128_t ds = wasm_f32x4_mul(share, wasm_f32x4_sub(load(slope), dot));
      if (p->k.softcap > 0) {
        const v128_t part = wasm_f32x4_mul(capped, inverse), bent = wasm_f32x4_sub(one, wasm_f32x4_mul(part, part));
        // Unseen keys have no weight; their "score" would overflow.
        ds = wasm_v128_and(wasm_f32x4_mul(ds, bent), wasm_f32x4_gt(share, wasm_f32x4_const_splat(0)));
      }
      wasm_v128_store(s, share);
      wasm_v128_store(slope, ds);
    }
  }
}

// dq = scale ds k, and dots[i, h] = sum(dout * out) for the keys' gradients.
// a: layer, q, k, v, out, log_sums, dout, dq, dots; 13: scratch
void attention_gradient_q(const Op *op, const Context *c) {
  const Packed p = packed(op->a[0], op->a[1], op->a[2], op->a[3]);
  const Room room = room_of(op, c);
  const f32 *out = at(op->a[4]), *log_sums = at(op->a[5]), *dout = at(op->a[6]);
  f32 *dq = at(op->a[7]), *dots = at(op->a[8]);
  const u32 size = p.k.head_dim, group = p.k.heads / p.k.kv_heads, blocks = (p.rows + ROWS - 1) / ROWS;
  for (Work work = work_of(c, blocks * p.k.kv_heads, 1); next_piece(&work);) {
    const u32 i = work.begin / p.k.kv_heads * ROWS, kv_head = work.begin % p.k.kv_heads, rows = min_u(ROWS, p.rows - i);
    for (u32 g = 0; g < group; g++)
      for (u32 r = i; r < i + rows; r++) {
        const u32 h = kv_head * group + g, first = r * p.width + h * size;
        f32 dot = 0;
        for (u32 d = 0; d < size; d++) dot += dout[first + d] * out[first + d], dq[first + d] = 0;
        dots[r * p.k.heads + h] = dot;
      }
    for (u32 j = 0; j < i + rows; j += KEYS) {
      if (!meets(&p, i, j)) continue;
      load_keys(&p, j, kv_head, p.keys, room.keys);
      load_keys(&p, j, kv_head, p.values, room.values);
      for (u32 g = 0; g < group; g++) {
        const u32 h = kv_head * group + g;
        slopes_of(&p, i, rows, h, j, &room, dout, log_sums, dots);
        f32 *to = dq + i * p.width + h * size;
        product(rows, size, min_u(KEYS, p.rows - j), by_rows(room.slopes, KEYS),
                plain(p.keys + j * p.kv_width + kv_head * size, p.kv_width), to, p.k.scale, to, p.width);
      }
    }
  }
}

// dk = scale ds^T q, dv = p^T dout.  a: layer, q, k, v, log_sums, dout, dots, dk, dv; 13: scratch
void attention_gradient_kv(const Op *op, const Context *c) {
  const Packed p = packed(op->a[0], op->a[1], op->a[2], op->a[3]);
  const Room room = room_of(op, c);
  const f32 *log_sums = at(op->a[4]), *dout = at(op->a[5]), *dots = at(op->a[6]);
  const u32 size = p.k.head_dim, group = p.k.heads / p.k.kv_heads, blocks = (p.rows + KEYS - 1) / KEYS;
  for (Work work = work_of(c, blocks * p.k.kv_heads, 1); next_piece(&work);) {
    const u32 j = work.begin / p.k.kv_heads * KEYS, kv_head = work.begin % p.k.kv_heads, keys = min_u(KEYS, p.rows - j);
    f32 *dk = (f32 *)at(op->a[7]) + j * p.kv_width + kv_head * size, *dv = (f32 *)at(op->a[8]) + j * p.kv_width + kv_head * size;
    for (u32 t = 0; t < keys; t++)
      for (u32 d = 0; d < size; d++) dk[t * p.kv_width + d] = dv[t * p.kv_width + d] = 0;
    load_keys(&p, j, kv_head, p.keys, room.keys);
    load_keys(&p, j, kv_head, p.values, room.values);
    for (u32 i = j / ROWS * ROWS; i < p.rows; i += ROWS) {
      if (!meets(&p, i, j)) continue;
      const u32 rows = min_u(ROWS, p.rows - i);
      for (u32 g = 0; g < group; g++) {
        const u32 h = kv_head * group + g, first = i * p.width + h * size;
        slopes_of(&p, i, rows, h, j, &room, dout, log_sums, dots);
        product(keys, size, rows, by_columns(room.slopes, KEYS), plain(p.queries + first, p.width), dk, p.k.scale, dk, p.kv_width);
        product(keys, size, rows, by_columns(room.scores, KEYS), plain(dout + first, p.width), dv, 1, dv, p.kv_width);
      }
    }
  }
}
