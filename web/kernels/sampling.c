// Samples the next token from the logits. py_core/sampling.py does the same in numpy, wgsl_shaders/sampling/sample.wgsl on the
// GPU.
#include "kernels.h"

// The state of a row's grammar.
static const GrammarState *grammar_state(const Op *op, const Row *row) {
  return (const GrammarState *)((u32 *)at(op->a[5]) + (row->grammar - 1));
}

static const u32 *masks_of(const Op *op, const GrammarState *state) { return (const u32 *)at(op->a[5]) + (state->masks - 1); }

// Takes a row from its grammar's state to the next one. If the host has not told that, the row waits for it, which the ring
// says behind the row's last token.
static void follow(const Op *op, Row *row, u32 *ring_end) {
  const GrammarState *state = grammar_state(op, row);
  const u32 *keeps = masks_of(op, state) + (op->a[2] + 31) / 32;
  if (state->masks && keeps[row->token / 32] >> row->token % 32 & 1) return;
  u32 next = 0;
  for (u32 i = 0; i < state->exits && !next; i++)
    if (state->exit[i].token == row->token) next = state->exit[i].state;
  row->grammar = next;
  if (next) return;
  row->waits = WAITS;
  *ring_end = NO_TOKEN;
}

// Makes the token sampled for a row its sequence's next one, and records it in the sequence's ring.
static void advance(const Op *op, Row *row, u32 token) {
  u32 *history = (u32 *)at(op->a[1]) + row->slot * op->a[3];
  if (row->waits == WAITS) return;
  row->token = token;
  row->position++;
  history[row->position % op->a[3]] = token;
  if (row->grammar && row->waits == FOLLOWS) follow(op, row, history + (row->position + 1) % op->a[3]);
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

// Takes the likeliest token for each row of the state with temperature 0. a: logits (rows, vocabulary), history,
// vocabulary, ring, weights (scratch, a float for each token), states of grammars, biases (slots, MOST_BIASES)
void argmax(const Op *op, State *state) {
  const u32 vocab = op->a[2];
  for (u32 r = 0; r < state->count; r++) {
    if (state->rows[r].temperature > 0) continue;
    const f32 *logits = (f32 *)at(op->a[0]) + r * vocab;
    const f32 largest = largest_of(logits, vocab);
    u32 token = 0;
    // Stops at the last token, since no logit equals the largest if all are NaN.
    while (token + 1 < vocab && logits[token] != largest) token++;
    advance(op, &state->rows[r], token);
  }
}

static void penalize(f32 *logits, const Row *row, const u32 *history, u32 ring) {
  const u32 window = min_u(row->penalty_window, row->position + 1);
  for (u32 i = 0; i < window; i++) {
    const u32 token = history[(row->position - i) % ring];
    u32 count = 1, newest = 1;
    for (u32 j = 0; j < window; j++) {
      if (j == i || history[(row->position - j) % ring] != token) continue;
      count++;
      newest &= j > i;
    }
    if (!newest) continue;
    const f32 value = logits[token];
    logits[token] = (value > 0 ? value / row->repetition_penalty : value * row->repetition_penalty) - row->presence_penalty -
                    (f32)count * row->frequency_penalty;
  }
}

// Leaves only the tokens that may come next.
static void keep_allowed(const Op *op, f32 *logits, const GrammarState *state, u32 vocab) {
  const f32 refused = -1e30f;
  if (!state->masks) {
    f32 kept[MOST_EXITS];
    for (u32 i = 0; i < state->exits; i++) kept[i] = logits[state->exit[i].token];
    for (u32 i = 0; i < vocab; i++) logits[i] = refused;
    for (u32 i = 0; i < state->exits; i++) logits[state->exit[i].token] = kept[i];
    return;
  }
  const u32 *mask = masks_of(op, state);
  for (u32 i = 0; i < vocab; i++) {
    if (i % 32 == 0 && mask[i / 32] == 0xffffffffu) i += 31;
    else if (!(mask[i / 32] >> i % 32 & 1)) logits[i] = refused;
  }
}

// Adds a row's biases, penalizes each token among its last penalty_window ones, once, and leaves only those that its grammar
// allows. a: as for argmax
void penalties(const Op *op, State *state) {
  const u32 vocab = op->a[2], ring = op->a[3];
  for (u32 r = 0; r < state->count; r++) {
    const Row *row = &state->rows[r];
    f32 *logits = (f32 *)at(op->a[0]) + r * vocab;
    const Bias *biases = (const Bias *)at(op->a[6]) + row->slot * MOST_BIASES;
    for (u32 i = 0; i < row->biases; i++) logits[biases[i].token] += biases[i].bias;
    penalize(logits, row, (u32 *)at(op->a[1]) + row->slot * ring, ring);
    if (row->grammar) keep_allowed(op, logits, grammar_state(op, row), vocab);
  }
}

// An integer with the order of the floats.
INLINE u32 key_of(f32 value) {
  u32 bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

typedef struct { const f32 *logits; const f32 *weights; u32 vocab; } Weighted;

// The largest key such that the tokens with it or a larger one reach `wanted`, counted as tokens or as weight. Tokens
// with keys below `floor` do not count.
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

// Draws a token by a row's rules. weights: scratch, a float for each token
static u32 draw(const f32 *logits, f32 *weights, u32 vocab, const Row *row) {
  const f32 largest = largest_of(logits, vocab);
  const Weighted w = {logits, weights, vocab};
  u32 floor = 0;
  for (u32 i = 0; i < vocab; i += 4) {
    v128_t scaled = wasm_f32x4_sub(load(logits + i), wasm_f32x4_splat(largest));
    wasm_v128_store(weights + i, exp4(wasm_f32x4_div(scaled, wasm_f32x4_splat(row->temperature))));
  }
  if (row->top_k > 0 && row->top_k < vocab) floor = select_key(&w, row->top_k, 1, 0);
  if (row->top_p < 1) {
    double kept = 0;
    for (u32 i = 0; i < vocab; i++) kept += key_of(logits[i]) >= floor ? weights[i] : 0;
    floor = max_u(floor, select_key(&w, kept * row->top_p, 0, floor));
  }
  double total = 0;
  u32 last = 0;
  for (u32 i = 0; i < vocab; i++) {
    if (key_of(logits[i]) < floor || weights[i] < row->min_p) { weights[i] = 0; continue; }
    total += weights[i];
    if (weights[i] > 0) last = i;
  }
  double left = (pcg(pcg(row->seed) ^ (row->position + 1)) >> 8) / 16777216.0 * total;
  u32 token = 0;
  for (; token < last; token++) {
    left -= weights[token];
    if (left < 0) break;
  }
  return token;
}

// Draws a token for each row that has a temperature. a: as for argmax
void sample(const Op *op, State *state) {
  const u32 vocab = op->a[2];
  for (u32 r = 0; r < state->count; r++) {
    Row *row = &state->rows[r];
    if (row->temperature == 0) continue;
    advance(op, row, draw((f32 *)at(op->a[0]) + r * vocab, at(op->a[4]), vocab, row));
  }
}
