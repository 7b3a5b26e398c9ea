// The loss of a pack's rows, and the gradient of the states that the output matrix reads. The vocabulary is processed
// in chunks. A row's gradient is the softmax-weighted mean of the matrix's rows minus the target's row. So it is summed
// the way attention sums values, with a running largest logit, and no chunk is computed twice.
#include "training.h"

enum { CHUNK = 256, WIDTH = 32, DEPTH = 256, MOST_ROWS = 96 };

// The host's data for a row that has a loss, and its sums so far: the largest logit, the sum of the exponentials of the
// logits minus it, both also for the base's logits, and the sum of the base's exponentials times the difference between
// the base's logits and the model's own.
typedef struct { u32 row, target; f32 weight, kl_weight; } LossRow;
typedef struct { f32 largest, total, base_largest, base_total, apart, target, unused[2]; } Running;

// Rows to be gathered or finished, each by one worker.
#define EACH(l, count) for (u32 l = c->worker; l < count; l += c->workers)

// states[l] = h[row l], and all sums start from zero.
// a: pack, loss rows, h, width, states, sums, base's sums or 0, running, dh, rows of dh (0: only the states are wanted)
void loss_begin(const Op *op, const Context *c) {
  const Pack *pack = at(op->a[0]);
  const LossRow *loss = at(op->a[1]);
  const u32 width = op->a[3], count = pack->loss_rows;
  EACH(l, count) {
    __builtin_memcpy((f32 *)at(op->a[4]) + l * width, (f32 *)at(op->a[2]) + loss[l].row * width, width * 4);
    __builtin_memset((f32 *)at(op->a[5]) + l * width, 0, width * 4);
    if (op->a[6]) __builtin_memset((f32 *)at(op->a[6]) + l * width, 0, width * 4);
    ((Running *)at(op->a[7]))[l] = (Running){-1e30f, 0, -1e30f, 0, 0, 0, {0, 0}};
  }
  if (op->a[8]) EACH(m, c->m) __builtin_memset((f32 *)at(op->a[8]) + m * width, 0, width * 4);
}

// Adds a chunk's logits to a softmax whose weighted sum of rows is `sums`, and replaces each logit by its exponential.
INLINE void grow(f32 *logits, u32 count, f32 *largest, f32 *total, f32 *sums, u32 width, f32 *shrink) {
  v128_t most = wasm_f32x4_splat(*largest), sum = wasm_f32x4_const_splat(0);
  for (u32 t = 0; t < count; t += 4) most = wasm_f32x4_pmax(most, load(logits + t));
  const f32 now = max4(most);
  *shrink = 1;
  if (now > *largest) {
    *shrink = exp1(*largest - now);
    const v128_t by = wasm_f32x4_splat(*shrink);
    *total *= *shrink;
    for (u32 i = 0; i < width; i += 4) wasm_v128_store(sums + i, wasm_f32x4_mul(load(sums + i), by));
    *largest = now;
  }
  for (u32 t = 0; t < count; t += 4) {
    const v128_t e = exp4(wasm_f32x4_sub(load(logits + t), wasm_f32x4_splat(now)));
    sum = wasm_f32x4_add(sum, e);
    wasm_v128_store(logits + t, e);
  }
  *total += sum4(sum);
}

// Replaces one row's logits of a chunk of `count` tokens, its own and the base's (or 0), by exponentials times the
// soft-cap's slope.
static void add_chunk(const LossRow *loss, Running *row, u32 first, u32 count, f32 cap, u32 width, f32 *logits, f32 *base,
                      f32 *sums, f32 *base_sums) {
  f32 apart[CHUNK], slope[CHUNK], shrink;
  const u32 padded = (count + 3) / 4 * 4;
  for (u32 t = count; t < padded; t++) {
    logits[t] = -1e30f;
    if (base) base[t] = -1e30f;
  }
  if (loss->target >= first && loss->target < first + count) row->target = logits[loss->target - first];
  for (u32 t = 0; t < padded; t++) {
    slope[t] = cap > 0 && t < count ? 1 - (logits[t] / cap) * (logits[t] / cap) : 1;
    if (base) apart[t] = base[t] - logits[t];
  }
  grow(logits, padded, &row->largest, &row->total, sums, width, &shrink);
  if (base) {
    grow(base, padded, &row->base_largest, &row->base_total, base_sums, width, &shrink);
    row->apart *= shrink;
    for (u32 t = 0; t < count; t++) row->apart += base[t] * apart[t];
  }
  if (cap <= 0) return;
  for (u32 t = 0; t < count; t++) {
    logits[t] *= slope[t];
    if (base) base[t] *= slope[t];
  }
}

static void finish_logits(f32 *logits, u32 count, const f32 *bias, f32 cap) {
  for (u32 t = 0; t < count; t += 4) {
    v128_t l = load(logits + t);
    if (bias) l = wasm_f32x4_add(l, load(bias + t));
    wasm_v128_store(logits + t, cap > 0 ? soft_cap4(l, cap) : l);
  }
}

// Tokens first .. last - 1 of the vocabulary: `first` is a multiple of CHUNK.
// a: pack, loss rows, matrix, bias or 0, cap, first, last, states, sums, running, base's states or 0, base's sums; 13: scratch
void loss_chunks(const Op *op, const Context *c) {
  const Pack *pack = at(op->a[0]);
  const LossRow *loss = at(op->a[1]);
  const PackedMatrix *w = at(op->a[2]);
  const f32 *bias = at(op->a[3]), *states = at(op->a[7]), *base_states = at(op->a[10]);
  const f32 cap = real(op->a[4]);
  f32 *sums = at(op->a[8]), *base_sums = at(op->a[11]);
  Running *running = at(op->a[9]);
  f32 *tile = scratch_of(op, c), *logits = tile + DEPTH * WIDTH, *base = logits + MOST_ROWS * CHUNK;
  const u32 width = w->columns, total = pack->loss_rows;
  // Split each worker's share into as few equal pieces as possible.
  const u32 share = (total + c->workers - 1) / c->workers, parts = max_u(1, (share + MOST_ROWS - 1) / MOST_ROWS);
  const u32 rows = max_u(4, (share / parts + 4) / 4 * 4);
  for (Work work = work_of(c, total, min_u(rows, MOST_ROWS)); next_piece(&work);) {
    const u32 l = work.begin, some = work.end - work.begin;
    for (u32 v = op->a[5]; v < op->a[6]; v += CHUNK) {
      const u32 count = min_u(CHUNK, op->a[6] - v);
      for (u32 n = 0; n < count; n += WIDTH)
        for (u32 p = 0; p < width; p += DEPTH) {
          const u32 depth = min_u(DEPTH, width - p), columns = min_u(WIDTH, count - n);
          weights_across(w, v + n, columns, p, depth, tile);
          f32 *to = logits + n, *base_to = base + n;
          product(some, columns, depth, by_rows(states + l * width + p, width), strips(tile, depth), p ? to : 0, 1, to, CHUNK);
          if (base_states)
            product(some, columns, depth, by_rows(base_states + l * width + p, width), strips(tile, depth), p ? base_to : 0, 1,
                    base_to, CHUNK);
        }
      for (u32 i = 0; i < some; i++) {
        f32 *own = logits + i * CHUNK, *other = base_states ? base + i * CHUNK : 0;
        finish_logits(own, count, bias ? bias + v : 0, cap);
        if (other) finish_logits(other, count, bias ? bias + v : 0, cap);
        add_chunk(loss + l + i, running + l + i, v, count, cap, width, own, other, sums + (l + i) * width,
                  base_sums + (l + i) * width);
      }
      for (u32 n = 0; n < width; n += WIDTH) {
        weights_down(w, v, count, n, tile);
        f32 *to = sums + l * width + n, *base_to = base_sums + l * width + n;
        const u32 columns = min_u(WIDTH, width - n);
        product(some, columns, count, by_rows(logits, CHUNK), strips(tile, count), to, 1, to, width);
        if (base_states) product(some, columns, count, by_rows(base, CHUNK), strips(tile, count), base_to, 1, base_to, width);
      }
    }
  }
}

// dh[row l] = (weight + kl_weight) * mean of rows - kl_weight * the base's mean - weight * slope * W[target]; losses[l] are the
// cross-entropy and the divergence, times their weights.
// a: pack, loss rows, matrix, cap, sums, running, base's sums or 0, dh, losses; 13: scratch
void loss_end(const Op *op, const Context *c) {
  const Pack *pack = at(op->a[0]);
  const LossRow *loss = at(op->a[1]);
  const PackedMatrix *w = at(op->a[2]);
  const f32 cap = real(op->a[3]);
  const Running *running = at(op->a[5]);
  f32 *four_rows = scratch_of(op, c), *losses = at(op->a[8]);
  const u32 width = w->columns;
  EACH(l, pack->loss_rows) {
    const LossRow *from = loss + l;
    const Running *row = running + l;
    const f32 *sums = (f32 *)at(op->a[4]) + l * width, *base_sums = op->a[6] ? (f32 *)at(op->a[6]) + l * width : 0;
    f32 *dh = (f32 *)at(op->a[7]) + from->row * width;
    const f32 log_sum = row->largest + log1(row->total), part = cap > 0 ? row->target / cap : 0;
    losses[2 * l] = from->weight * (log_sum - row->target);
    losses[2 * l + 1] =
        base_sums ? from->kl_weight * (row->apart / row->base_total - row->base_largest - log1(row->base_total) + log_sum) : 0;
    const f32 own = (from->weight + from->kl_weight) / row->total, slope = from->weight * (1 - part * part);
    const f32 other = base_sums ? from->kl_weight / row->base_total : 0;
    const u32 row0 = from->target / 4 * 4, lane = from->target % 4;
    const u32 rows = min_u(4, w->rows - row0);
    for (u32 n = 0; n < width; n += WIDTH) {
      weights_down(w, row0, rows, n, four_rows);
      for (u32 i = 0; i < WIDTH && n + i < width; i++) {
        const f32 value = four_rows[i / STRIP * rows * STRIP + lane * STRIP + i % STRIP];
        dh[n + i] = own * sums[n + i] - slope * value - (base_sums ? other * base_sums[n + i] : 0);
      }
    }
  }
}
