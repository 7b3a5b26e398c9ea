// The next token from the logits. py_core/sampling.py is the same in numpy, wgsl_shaders/sample.wgsl on the GPU.
#include "kernels.h"

// Makes a token the next pass's only row, and notes it in its sequence's ring.
static i32 advance(State *state, u32 *history, u32 ring, u32 token) {
  const Row last = state->rows[state->count - 1];
  history[last.slot * ring + (last.position + 1) % ring] = token;
  state->rows[0] = (Row){token, last.position + 1, last.slot, 0};
  state->count = 1;
  return (i32)token;
}

static f32 largest_of(const f32 *logits, u32 vocab) {
  v128_t most = wasm_f32x4_splat(logits[0]);
  u32 i = 0;
  for (; i + 4 <= vocab; i += 4) most = wasm_f32x4_pmax(most, load(logits + i));
  f32 lanes[4], largest = logits[0];
  wasm_v128_store(lanes, most);
  for (u32 j = 0; j < 4; j++) largest = lanes[j] > largest ? lanes[j] : largest;
  for (; i < vocab; i++) largest = logits[i] > largest ? logits[i] : largest;
  return largest;
}

// a: logits, history, vocabulary, ring
i32 argmax(const Op *op, State *state) {
  const f32 *logits = at(op->a[0]);
  const f32 largest = largest_of(logits, op->a[2]);
  u32 token = 0;
  // Where there is no number among them, none equals the largest.
  while (token + 1 < op->a[2] && logits[token] != largest) token++;
  return advance(state, at(op->a[1]), op->a[3], token);
}

// Each token among the last penalty_window ones once. a: as argmax's
void penalties(const Op *op, State *state) {
  f32 *logits = at(op->a[0]);
  const Row last = state->rows[state->count - 1];
  const u32 ring = op->a[3], window = min_u(state->penalty_window, last.position + 1);
  const u32 *history = (u32 *)at(op->a[1]) + last.slot * ring;
  for (u32 i = 0; i < window; i++) {
    const u32 token = history[(last.position - i) % ring];
    u32 count = 1, newest = 1;
    for (u32 j = 0; j < window; j++) {
      if (j == i || history[(last.position - j) % ring] != token) continue;
      count++;
      newest &= j > i;
    }
    if (!newest) continue;
    const f32 value = logits[token];
    logits[token] = (value > 0 ? value / state->repetition_penalty : value * state->repetition_penalty) -
                    state->presence_penalty - (f32)count * state->frequency_penalty;
  }
}

// Floats in the order of their values.
INLINE u32 key_of(f32 value) {
  u32 bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static u32 pcg(u32 value) {
  const u32 state = value * 747796405u + 2891336453u;
  const u32 word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u;
  return (word >> 22) ^ word;
}

typedef struct { const f32 *logits; const f32 *weights; u32 vocab; } Weighted;

// The key of the smallest token of the fewest largest ones that hold `wanted` together, among keys of at least `floor`:
// counted as tokens, or as weight.
static u32 select_key(const Weighted *w, double wanted, int by_count, u32 floor) {
  u32 prefix = 0;
  for (u32 shift = 32; shift > 0;) {
    double bins[256] = {0};
    shift -= 8;
    for (u32 i = 0; i < w->vocab; i++) {
      const u32 key = key_of(w->logits[i]);
      if (key < floor || (shift < 24 && key >> (shift + 8) != prefix)) continue;
      bins[key >> shift & 255] += by_count ? 1 : w->weights[i];
    }
    u32 bin = 255;
    while (bin > 0 && bins[bin] < wanted) wanted -= bins[bin--];
    prefix = prefix << 8 | bin;
  }
  return prefix;
}

// a: logits, history, vocabulary, ring, weights (a float for each token, to work in)
i32 sample(const Op *op, State *state) {
  const u32 vocab = op->a[2];
  const f32 *logits = at(op->a[0]);
  f32 *weights = at(op->a[4]);
  const f32 largest = largest_of(logits, vocab);
  const Weighted w = {logits, weights, vocab};
  u32 floor = 0;
  for (u32 i = 0; i < vocab; i += 4) {
    v128_t scaled = wasm_f32x4_sub(load(logits + i), wasm_f32x4_splat(largest));
    wasm_v128_store(weights + i, exp4(wasm_f32x4_div(scaled, wasm_f32x4_splat(state->temperature))));
  }
  if (state->top_k > 0 && state->top_k < vocab) floor = select_key(&w, state->top_k, 1, 0);
  if (state->top_p < 1) {
    double kept = 0;
    for (u32 i = 0; i < vocab; i++) kept += key_of(logits[i]) >= floor ? weights[i] : 0;
    floor = max_u(floor, select_key(&w, kept * state->top_p, 0, floor));
  }
  double total = 0;
  u32 last = 0;
  for (u32 i = 0; i < vocab; i++) {
    if (key_of(logits[i]) < floor || weights[i] < state->min_p) { weights[i] = 0; continue; }
    total += weights[i];
    if (weights[i] > 0) last = i;
  }
  const u32 position = state->rows[state->count - 1].position + 1;
  double left = (pcg(pcg(state->seed) ^ position) >> 8) / 16777216.0 * total;
  u32 token = 0;
  for (; token < last; token++) {
    left -= weights[token];
    if (left < 0) break;
  }
  return advance(state, at(op->a[1]), op->a[3], token);
}
