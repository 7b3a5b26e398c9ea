// Adapters at the head's input (py_core/adapters/head.py), the log-probabilities of given tokens, and tokens for masks.
#include "kernels.h"

enum { MOST_NEIGHBOURS = 64 };
// An adapter in a slot: `count` states (., width) of length 1, with `tokens` the tokens that followed them.
typedef struct {
  u32 count;
  f32 odds, tau, temperature;
  u32 tokens[MOST_NEIGHBOURS];
  f32 states[];
} HeadAdapter;
// For a row of the pass: its neighbours' weights, if its gate is open.
typedef struct { const HeadAdapter *open; u32 unused[3]; f32 weights[MOST_NEIGHBOURS]; } Near;
// For a row's logits that a worker has seen so far: sum(exp(l - most)).
typedef struct { f32 most, sum; } Sum;

static f32 dot(const f32 *a, const f32 *b, u32 size) {
  v128_t sums[4];
  for (u32 j = 0; j < 4; j++) sums[j] = wasm_f32x4_const_splat(0);
  u32 i = 0;
  for (; i + 16 <= size; i += 16)
    for (u32 j = 0; j < 4; j++) sums[j] = madd(load(a + i + 4 * j), load(b + i + 4 * j), sums[j]);
  for (; i < size; i += 4) sums[0] = madd(load(a + i), load(b + i), sums[0]);
  return sum4(wasm_f32x4_add(wasm_f32x4_add(sums[0], sums[1]), wasm_f32x4_add(sums[2], sums[3])));
}

// The softmax of cosines over the neighbours; returns whether the nearest is near enough.
static int weigh_neighbours(const HeadAdapter *adapter, const f32 *h, u32 width, f32 *weights) {
  const f32 squares = dot(h, h, width), scale = squares > 0 ? 1 / __builtin_sqrtf(squares) : 0;
  f32 largest = -2, sum = 0;
  for (u32 i = 0; i < adapter->count; i++) {
    weights[i] = scale * dot(adapter->states + i * width, h, width);
    largest = weights[i] > largest ? weights[i] : largest;
  }
  // Not written as largest < tau: the gate must stay shut if a state contains NaN.
  if (!(largest >= adapter->tau)) return 0;
  for (u32 i = 0; i < adapter->count; i++) sum += weights[i] = exp1((weights[i] - largest) / adapter->temperature);
  for (u32 i = 0; i < adapter->count; i++) weights[i] /= sum;
  return 1;
}

// Computes the weights of each row's neighbours.
// a: h, width, slots (addresses of adapters by number, 0 if there is none), Near of each row
void head_adapt(const Op *op, const Context *c) {
  const u32 width = op->a[1], *slots = at(op->a[2]);
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const u32 slot = slots[c->state->rows[c->first + m].head_adapter];
    const HeadAdapter *adapter = at(slot);
    const f32 *h = (f32 *)at(op->a[0]) + m * width;
    Near *near = (Near *)at(op->a[3]) + m;
    near->open = 0;
    if (slot && weigh_neighbours(adapter, h, width, near->weights)) near->open = adapter;
  }
}

// Adds some columns of the logits to each row's sums. Each worker has its own share of the columns, and its own sums.
// a: logits, columns, floats from row to row, the vocabulary's first of these columns, Sum (row, MOST_WORKERS),
//    1 if these are the first columns, Near of each row: only rows whose gate is open count; or 0: all do,
//    targets (a token of each row) or 0, their logits
void logit_sums(const Op *op, const Context *c) {
  const u32 columns = op->a[1], first = op->a[3], *targets = at(op->a[7]);
  const u32 groups = (columns + 3) / 4;
  const u32 begin = min_u(columns, (u32)((uint64_t)groups * c->worker / c->workers) * 4);
  const u32 end = min_u(columns, (u32)((uint64_t)groups * (c->worker + 1) / c->workers) * 4);
  for (u32 m = 0; m < c->m; m++) {
    const f32 *logits = (f32 *)at(op->a[0]) + m * op->a[2];
    Sum *sum = (Sum *)at(op->a[4]) + m * MOST_WORKERS + c->worker;
    if (op->a[5]) *sum = (Sum){-__builtin_inff(), 0};
    if ((op->a[6] && !((Near *)at(op->a[6]))[m].open) || begin == end) continue;
    if (op->a[7] && targets[m] >= first + begin && targets[m] < first + end)
      ((f32 *)at(op->a[8]))[m] = logits[targets[m] - first];
    f32 most = sum->most;
    v128_t largest = wasm_f32x4_splat(logits[begin]);
    u32 i = begin;
    for (; i + 4 <= end; i += 4) largest = wasm_f32x4_pmax(largest, load(logits + i));
    f32 tail = max4(largest);
    for (; i < end; i++) tail = logits[i] > tail ? logits[i] : tail;
    most = tail > most ? tail : most;
    v128_t sums = wasm_f32x4_const_splat(0);
    for (i = begin; i + 4 <= end; i += 4) sums = wasm_f32x4_add(sums, exp4(wasm_f32x4_sub(load(logits + i), wasm_f32x4_splat(most))));
    f32 total = sum4(sums);
    for (; i < end; i++) total += exp1(logits[i] - most);
    *sum = (Sum){most, sum->sum * exp1(sum->most - most) + total};
  }
}

// log(sum(exp(logits))) of a row, from all workers' sums.
static f32 logsumexp(const Sum *sums, u32 workers) {
  f32 most = sums[0].most, total = 0;
  for (u32 w = 1; w < workers; w++) most = sums[w].most > most ? sums[w].most : most;
  for (u32 w = 0; w < workers; w++) total += sums[w].sum * exp1(sums[w].most - most);
  return most + log1(total);
}

// The weight that a row's neighbours give a token.
static f32 weight_of(const Near *near, u32 token) {
  f32 weight = 0;
  for (u32 i = 0; i < near->open->count; i++) weight += near->open->tokens[i] == token ? near->weights[i] : 0;
  return weight;
}

// l' = log(exp(l) + odds * weight * exp(logsumexp)) for the tokens that followed a row's neighbours, if its gate is
// open.
// a: logits, vocabulary, Near of each row, Sum (row, MOST_WORKERS)
void head_mix(const Op *op, const Context *c) {
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const Near *near = (Near *)at(op->a[2]) + m;
    const HeadAdapter *adapter = near->open;
    if (!adapter) continue;
    f32 *logits = (f32 *)at(op->a[0]) + m * op->a[1];
    const f32 total = logsumexp((Sum *)at(op->a[3]) + m * MOST_WORKERS, c->workers);
    for (u32 i = 0; i < adapter->count; i++) {
      const u32 token = adapter->tokens[i];
      const f32 added = adapter->odds * weight_of(near, token);
      u32 seen = 0;
      for (u32 j = 0; j < i; j++) seen |= adapter->tokens[j] == token;
      if (!seen && added > 0) logits[token] = total + log1(exp1(logits[token] - total) + added);
    }
  }
}

// log p of a token of each row, after all columns were summed. a: targets, their logits, Sum (row, MOST_WORKERS), Near of
// each row, out (a float for each row)
void token_scores(const Op *op, const Context *c) {
  const u32 *targets = at(op->a[0]);
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const Near *near = (Near *)at(op->a[3]) + m;
    f32 score = ((f32 *)at(op->a[1]))[m] - logsumexp((Sum *)at(op->a[2]) + m * MOST_WORKERS, c->workers);
    if (near->open) {
      const f32 odds = near->open->odds, added = odds * weight_of(near, targets[m]);
      score = (added > 0 ? log1(exp1(score) + added) : score) - log1(1 + odds);
    }
    ((f32 *)at(op->a[4]))[m] = score;
  }
}

// For a row's logits that a worker has seen so far: the token with the highest score, and its logit.
typedef struct { f32 score, logit; u32 token, unused; } Drawn;
INLINE int is_better(Drawn a, Drawn b) { return a.score > b.score || (a.score == b.score && a.token < b.token); }

// Draws a token for each row from some columns of the logits, as `unmasked` of py_core/sampling.py. Each worker has its own
// share of the columns, as in logit_sums.
// a: logits, columns, floats from row to row, the vocabulary's first of these columns, Drawn (row, MOST_WORKERS),
//    1 if these are the first columns, the mask, which no row gets, how far a row's place is behind its position,
//    states of grammars: a row that names one gets a token of its mask
void draw_columns(const Op *op, const Context *c) {
  const u32 columns = op->a[1], first = op->a[3], mask = op->a[6], groups = (columns + 3) / 4;
  const u32 begin = min_u(columns, (u32)((uint64_t)groups * c->worker / c->workers) * 4);
  const u32 end = min_u(columns, (u32)((uint64_t)groups * (c->worker + 1) / c->workers) * 4);
  for (u32 m = 0; m < c->m; m++) {
    const f32 *logits = (f32 *)at(op->a[0]) + m * op->a[2];
    const Row *row = &c->state->rows[c->first + m];
    const u32 place = pcg(pcg(row->seed) ^ (row->position + op->a[7]));
    Drawn *drawn = (Drawn *)at(op->a[4]) + m * MOST_WORKERS + c->worker, best = *drawn;
    if (op->a[5]) best = (Drawn){-__builtin_inff(), 0, 0, 0};
    const u32 *grammars = (u32 *)at(op->a[8]);
    const u32 *allowed = row->grammar ? grammars + ((GrammarState *)(grammars + row->grammar - 1))->masks - 1 : 0;
    for (u32 i = begin; i < end; i++) {
      Drawn one = {logits[i], logits[i], first + i, 0};
      if (one.token == mask || (allowed && !(allowed[one.token / 32] >> one.token % 32 & 1))) continue;
      if (row->temperature > 0) {
        const f32 number = ((f32)(pcg(place ^ one.token) >> 9) + 0.5f) / 8388608;
        one.score -= row->temperature * log1(-log1(number));
      }
      if (is_better(one, best)) best = one;
    }
    *drawn = best;
  }
}

// The token of each row and log p of it, after all columns were summed and drawn from.
// a: Drawn (row, MOST_WORKERS), Sum (row, MOST_WORKERS), out (token and log p for each row)
void unmask(const Op *op, const Context *c) {
  for (u32 m = c->worker; m < c->m; m += c->workers) {
    const Drawn *drawn = (Drawn *)at(op->a[0]) + m * MOST_WORKERS;
    Drawn best = drawn[0];
    for (u32 w = 1; w < c->workers; w++) best = is_better(drawn[w], best) ? drawn[w] : best;
    u32 *out = (u32 *)at(op->a[2]) + 2 * m;
    out[0] = best.token;
    ((f32 *)out)[1] = best.logit - logsumexp((Sum *)at(op->a[1]) + m * MOST_WORKERS, c->workers);
  }
}
