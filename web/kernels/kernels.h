// Shared by all kernels: the memory's layout, the program's operations, and SIMD in two builds.
// py_core/backends/wasm/layout.py has the same numbers for Python.
#pragma once
#include <stdint.h>
#include <wasm_simd128.h>

typedef uint32_t u32;
typedef int32_t i32;
typedef float f32;
#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name
#define INLINE static inline __attribute__((always_inline))

// ---- memory: the control block at 1024, stacks above it, then Python's allocations ----
typedef struct {
  u32 arrived;     // workers at the barrier
  u32 generation;  // barriers passed
  u32 unused;
  u32 spin;        // how long a worker spins before it sleeps; adaptive
  u32 abort;       // set by the host: leave every barrier, run returns -2
  u32 sleepers;    // workers asleep at the barrier
} Control;
#define CONTROL ((volatile Control *)1024)
// How much of its share of the current operation each worker has begun; a cache line each, from 2048 on.
enum { MOST_WORKERS = 16 };
#define BEGUN(worker) ((u32 *)(2048 + 64 * (worker)))

// ---- state that changes from pass to pass: py_core/backends/sampling_state.py ----
// A token, and the sampling rules for the one after it.
typedef struct {
  u32 token, position, slot, seed;
  f32 temperature;
  u32 top_k;
  f32 top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  u32 penalty_window;
  u32 head_adapter;    // the adapter at the head's input, 0 for none
  u32 grammar, waits;  // the place of the grammar's state + 1, 0 for none; if the host has to go on with it
  u32 biases;          // how many its slot has
  u32 ahead;           // how many positions behind its own it sees
} Row;
typedef struct {
  u32 count, logit_rows, adapter, unused;  // adapter: the set of LoRA matrices that the rows run with, 0 for none
  Row rows[];
} State;

typedef struct { u32 token; f32 bias; } Bias;
enum { MOST_BIASES = 1024 };  // of a slot

// ---- states of grammars (py_core/backends/grammar_states.py) ----
enum { FOLLOWS, WAITS, STAYS };    // of a row: STAYS if it does not go on to another state
enum { NO_TOKEN = 0xffffffff };  // in a ring, behind the last token of a row that waits
// Words. At `masks` - 1 are a mask of the tokens that may come next, and one of those that lead back to the state; states share
// them. If `masks` is 0, only the exits may come.
typedef struct {
  u32 exits, masks;
  struct { u32 token, state; } exit[];  // tokens that lead to another state; state 0: the host has to tell
} GrammarState;
enum { MOST_EXITS = 63 };

// ---- weights, repacked: groups of 4 rows, so that a vector's lane is a row, and bands of 4 groups ----
// A block of 32 columns of a band is the codes q of each group, then scales: value = d * q + m. Vector v of a group's
// first 64 bytes holds the low nibbles of q of columns 4v .. 4v+3 (its own low nibbles) and 16 + 4v .. (its high ones)
// of the 4 rows. "Step" k of a block is the low (k even) or high nibbles of vector k / 2. What follows the nibbles:
//   NIBBLES, SPLIT  nothing
//   FIVES           16 bytes: bit k of byte j is the fifth bit of byte j of step k
//   SIXES           32 bytes: the fifth and sixth bits, in bits 2 (k % 4) and above of vector k / 4
//   EIGHTS           64 bytes: the high nibbles, as the low ones lie
// Scales are d[16] and m[16]. SPLIT and SIXES have them for 16 columns. SPLIT: d of the first 16, d and m of the last
// 16, and how much larger the first 16's m is. SIXES: d of the first 16 and of the last; m = -32 d.
// A band is read from its first byte to its last: a core gets twice the bandwidth from one stream as from four.
// FLOAT32, FLOAT16, BFLOAT16: [group][column][4 rows].
enum { NIBBLES = 1, FIVES = 2, EIGHTS = 3, SPLIT = 4, SIXES = 5, FLOAT32 = 6, FLOAT16 = 7, BFLOAT16 = 8 };
typedef struct { u32 kind, rows, columns, data; } PackedMatrix;
static inline u32 bits_of(u32 kind) { return kind == FIVES ? 5 : kind == SIXES ? 6 : kind == EIGHTS ? 8 : 4; }
static inline u32 is_split(u32 kind) { return kind == SPLIT || kind == SIXES; }
static inline u32 group_bytes_of(u32 kind) { return bits_of(kind) * 16; }  // the codes of a group
static inline u32 block_bytes_of(u32 kind) { return group_bytes_of(kind) * 4 + (kind == SPLIT ? 256 : 128); }

// ---- activations of a linear: quantized in blocks of 32 columns, or floats ----
enum { FAST = 1, PRECISE = 2, FLOAT = 3 };  // one int8 limb, two of them (15 bits), float32

// ---- a program: header, then operations of 16 words; addresses are byte offsets ----
enum {
  EMBED = 1, QUANTIZE, LINEAR, ROPE_APPEND, ATTENTION, ARGMAX, SAMPLE, PENALTIES, LOGIT_ROWS, GLU, NORM, ROPE, ADD, SOFT_CAP,
  LORA_DOWN, LORA_LINEAR, HEAD_ADAPT, LOGIT_SUMS, HEAD_MIX, TOKEN_SCORES, COPY, DEMOTE, SHORT_CONV,
  ROUTE, EXPERT_LINEAR, MIX, DELTA_RULE, HALF, SCALE, UNLESS_WAITING, DRAW_COLUMNS, UNMASK
};
typedef struct { u32 kind, a[15]; } Op;
typedef struct { u32 count, state, unused[14]; Op ops[]; } Program;
enum { NEVER = 0, ALWAYS = 1, MANY_ROWS = 2 };  // a[14]: whether the workers wait for each other after the operation
// The rows of the state that an operation runs on: m rows from `first` on. These are all rows, or only the last ones,
// which need logits.
typedef struct { const State *state; u32 worker, workers, first, m; } Context;

void embed(const Op *op, const Context *c);
void quantize(const Op *op, const Context *c);
void linear(const Op *op, const Context *c);
void lora_down(const Op *op, const Context *c);
void lora_linear(const Op *op, const Context *c);
void glu(const Op *op, const Context *c);
void norm(const Op *op, const Context *c);
void rope(const Op *op, const Context *c);
void add(const Op *op, const Context *c);
void soft_cap(const Op *op, const Context *c);
void rope_append(const Op *op, const Context *c);
void attention(const Op *op, const Context *c);
void head_adapt(const Op *op, const Context *c);
void logit_sums(const Op *op, const Context *c);
void head_mix(const Op *op, const Context *c);
void token_scores(const Op *op, const Context *c);
void draw_columns(const Op *op, const Context *c);
void unmask(const Op *op, const Context *c);
void copy(const Op *op, const Context *c);
void demote(const Op *op, const Context *c);
void short_conv(const Op *op, const Context *c);
void route(const Op *op, const Context *c);
void expert_linear(const Op *op, const Context *c);
void mix(const Op *op, const Context *c);
void delta_rule(const Op *op, const Context *c);
void half_heads(const Op *op, const Context *c);
void scale(const Op *op, const Context *c);
void argmax(const Op *op, State *state);
void sample(const Op *op, State *state);
void penalties(const Op *op, State *state);

int barrier(u32 workers);
void normalize(const f32 *x, const f32 *weight, u32 size, f32 eps, f32 *out);
void rotate(const f32 *restrict x, const f32 *angles, u32 pairs, u32 interleaved, u32 size, f32 *restrict out);

INLINE void *at(u32 address) { return (void *)address; }
INLINE f32 real(u32 bits) { return __builtin_bit_cast(f32, bits); }
INLINE u32 min_u(u32 a, u32 b) { return a < b ? a : b; }
INLINE u32 max_u(u32 a, u32 b) { return a > b ? a : b; }

// An operation's work: `total` units in pieces of `size`. Each worker has its own share, contiguous in memory, and
// processes it in order, because sequential reads are fast. A worker that is done helps the others, so that a worker
// whose core is taken by another program does less.
typedef struct { u32 total, size, worker, workers, helped, begin, end; } Work;
INLINE Work work_of(const Context *c, u32 total, u32 size) { return (Work){total, size, c->worker, c->workers, 0, 0, 0}; }
INLINE u32 share_begin(const Work *w, u32 worker) { return (u32)((uint64_t)w->total * worker / w->workers); }

// The next piece, begin .. end - 1, for this worker; 0 if nothing is left.
INLINE int next_piece(Work *w) {
  if (w->workers == 1) {
    w->begin = w->end;
    w->end = min_u(w->total, w->end + w->size);
    return w->begin < w->total;
  }
  for (; w->helped < w->workers; w->helped++) {
    const u32 other = (w->worker + w->helped) % w->workers, first = share_begin(w, other), last = share_begin(w, other + 1);
    if (__atomic_load_n(BEGUN(other), __ATOMIC_RELAXED) >= last - first) continue;
    w->begin = first + __atomic_fetch_add(BEGUN(other), w->size, __ATOMIC_RELAXED);
    w->end = min_u(last, w->begin + w->size);
    if (w->begin < last) return 1;
  }
  return 0;
}

// ---- SIMD ----
INLINE v128_t load(const void *p) { return wasm_v128_load(p); }
INLINE v128_t splat4(const void *p) { return wasm_v128_load32_splat(p); }
INLINE f32 sum4(v128_t v) {
  v = wasm_f32x4_add(v, wasm_i32x4_shuffle(v, v, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(wasm_f32x4_add(v, wasm_i32x4_shuffle(v, v, 1, 0, 3, 2)), 0);
}
INLINE f32 max4(v128_t v) {
  v = wasm_f32x4_pmax(v, wasm_i32x4_shuffle(v, v, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(wasm_f32x4_pmax(v, wasm_i32x4_shuffle(v, v, 1, 0, 3, 2)), 0);
}
// The largest absolute value.
INLINE f32 abs_max_of(const f32 *x, u32 size) {
  v128_t most = wasm_f32x4_const_splat(0);
  for (u32 i = 0; i < size; i += 4) most = wasm_f32x4_pmax(most, wasm_f32x4_abs(load(x + i)));
  return max4(most);
}

#ifdef PLAIN_SIMD
#define KEEP(acc) __asm__ volatile("" : "+r"((acc).lo), "+r"((acc).hi))
INLINE v128_t madd(v128_t a, v128_t b, v128_t c) { return wasm_f32x4_add(wasm_f32x4_mul(a, b), c); }
// Two accumulators: the products of rows 0, 1 and of rows 2, 3, pairs not yet added.
typedef struct { v128_t lo, hi; } Acc;
INLINE Acc acc_zero(void) { return (Acc){wasm_i32x4_const(0, 0, 0, 0), wasm_i32x4_const(0, 0, 0, 0)}; }
INLINE Acc acc_dot(v128_t x, v128_t w, Acc acc) {
  acc.lo = wasm_i32x4_add(acc.lo, wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(x), wasm_i16x8_extend_low_i8x16(w)));
  acc.hi = wasm_i32x4_add(acc.hi, wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(x), wasm_i16x8_extend_high_i8x16(w)));
  return acc;
}
INLINE v128_t acc_rows(Acc acc) {
  return wasm_i32x4_add(wasm_i32x4_shuffle(acc.lo, acc.hi, 0, 2, 4, 6), wasm_i32x4_shuffle(acc.lo, acc.hi, 1, 3, 5, 7));
}
#else
INLINE v128_t madd(v128_t a, v128_t b, v128_t c) { return wasm_f32x4_relaxed_madd(a, b, c); }
#define KEEP(acc) __asm__ volatile("" : "+r"(acc))
typedef v128_t Acc;
INLINE Acc acc_zero(void) { return wasm_i32x4_const_splat(0); }
INLINE v128_t acc_rows(Acc acc) { return acc; }
// Lane r: the sum over 4 columns of row r, x times w; w is within the 7 bits for which all CPUs are exact.
#ifdef PAIRS
// For CPUs without an instruction for sums of four products: there, V8 needs five instructions for each 32-bit dot
// product, and two for a 16-bit one and its addition.
INLINE Acc acc_dot(v128_t x, v128_t w, Acc acc) {
  return wasm_i32x4_add(acc, wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_relaxed_dot_i8x16_i7x16(x, w)));
}
// The number of steps whose products of pairs of columns fit 16 bits: 8 times 2 * 127 * 15, 4 times 2 * 127 * 31 and twice
// 2 * 127 * 63 are less than 2^15.
#define STEPS(bits) ((bits) == 4 ? 8 : (bits) == 5 ? 4 : 2)
INLINE Acc codes_dot(v128_t x, v128_t w, Acc acc) { return wasm_i16x8_add(acc, wasm_i16x8_relaxed_dot_i8x16_i7x16(x, w)); }
INLINE v128_t codes_rows(Acc acc) { return wasm_i32x4_extadd_pairwise_i16x8(acc); }
#else
INLINE Acc acc_dot(v128_t x, v128_t w, Acc acc) { return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w, acc); }
#endif
#endif
#ifndef PAIRS
#define STEPS(bits) 8
INLINE Acc codes_dot(v128_t x, v128_t w, Acc acc) { return acc_dot(x, w, acc); }
INLINE v128_t codes_rows(Acc acc) { return acc_rows(acc); }
#endif

// Whether precise products with weights of this number of bits use 16 bits. A product of bytes takes a limb of x and up
// to 7 bits of W; one of 16 bits takes both limbs and all of W, at half the columns.
#ifdef PLAIN_SIMD
#define WIDE(bits) 1
#elif defined(PAIRS)
#define WIDE(bits) ((bits) > 4)
#else
#define WIDE(bits) 0
#endif

// Step k of a group's codes: four columns of four rows, in bytes. bits: all of them, or 4 for the nibbles alone.
INLINE v128_t codes_at(const uint8_t *group, const u32 bits, const u32 k) {
  const v128_t mask = wasm_i8x16_const_splat(15);
  const v128_t packed = load(group + k / 2 * 16);  // V8 has no cheap shift of bytes
  const v128_t low = wasm_v128_and(k % 2 ? wasm_u16x8_shr(packed, 4) : packed, mask);
  if (bits == 4) return low;
  if (bits == 8) {
    const v128_t second = load(group + 64 + k / 2 * 16);
    return wasm_v128_or(low, wasm_v128_andnot(k % 2 ? second : wasm_i16x8_shl(second, 4), mask));
  }
  const v128_t upper = load(group + 64 + (bits == 6 ? k / 4 * 16 : 0));
  const i32 shift = 4 - (bits == 6 ? (i32)(k % 4) * 2 : (i32)k);
  const v128_t moved = shift >= 0 ? wasm_i16x8_shl(upper, shift) : wasm_u16x8_shr(upper, -shift);
  return wasm_v128_or(low, wasm_v128_and(moved, wasm_i8x16_splat(bits == 6 ? 48 : 16)));
}

// Adding 1.5 * 2^23 leaves a number of up to 22 bits, rounded to the nearest integer (ties to even), in the low bits of
// the sum: cheaper than wasm's conversions, which handle more cases.
#define ROUNDING 12582912.0f
INLINE v128_t whole4(v128_t x, v128_t factor) {
  const v128_t magic = wasm_f32x4_const_splat(ROUNDING);
  return wasm_i32x4_sub(madd(x, factor, magic), magic);
}

// e^x, relative error under 2e-7 for -87 < x < 88 (Cephes' polynomial); 0 below.
INLINE v128_t exp4(v128_t x) {
  const v128_t low = wasm_f32x4_const_splat(-87.0f), magic = wasm_f32x4_const_splat(ROUNDING);
  const v128_t zero_where = wasm_f32x4_lt(x, low);
  x = wasm_f32x4_pmin(wasm_f32x4_const_splat(88.0f), wasm_f32x4_pmax(low, x));
  const v128_t shifted = madd(x, wasm_f32x4_const_splat(1.44269504088896341f), magic), n = wasm_f32x4_sub(shifted, magic);
  v128_t r = madd(n, wasm_f32x4_const_splat(-0.693359375f), x);
  r = madd(n, wasm_f32x4_const_splat(2.12194440e-4f), r);
  v128_t p = wasm_f32x4_const_splat(1.9875691500e-4f);
  p = madd(p, r, wasm_f32x4_const_splat(1.3981999507e-3f));
  p = madd(p, r, wasm_f32x4_const_splat(8.3334519073e-3f));
  p = madd(p, r, wasm_f32x4_const_splat(4.1665795894e-2f));
  p = madd(p, r, wasm_f32x4_const_splat(1.6666665459e-1f));
  p = madd(p, r, wasm_f32x4_const_splat(5.0000001201e-1f));
  p = madd(p, wasm_f32x4_mul(r, r), wasm_f32x4_add(r, wasm_f32x4_const_splat(1.0f)));
  // p is near 1: adding n to its exponent multiplies it by 2^n.
  return wasm_v128_andnot(wasm_i32x4_add(p, wasm_i32x4_shl(shifted, 23)), zero_where);
}
INLINE f32 exp1(f32 x) { return wasm_f32x4_extract_lane(exp4(wasm_f32x4_splat(x)), 0); }

// ln(x) of a normal x > 0, relative error under 2e-7 (Cephes' polynomial).
INLINE f32 log1(f32 x) {
  u32 bits = __builtin_bit_cast(u32, x);
  f32 e = (f32)((i32)(bits >> 23) - 126);
  f32 z = __builtin_bit_cast(f32, (bits & 0x7fffff) | 0x3f000000);  // 0.5 .. 1
  if (z < 0.70710678f) e -= 1, z += z;
  z -= 1;
  f32 p = 7.0376836292e-2f;
  p = p * z - 1.1514610310e-1f;
  p = p * z + 1.1676998740e-1f;
  p = p * z - 1.2420140846e-1f;
  p = p * z + 1.4249322787e-1f;
  p = p * z - 1.6668057665e-1f;
  p = p * z + 2.0000714765e-1f;
  p = p * z - 2.4999993993e-1f;
  p = p * z + 3.3333331174e-1f;
  return p * z * z * z - 2.12194440e-4f * e - 0.5f * z * z + z + 0.693359375f * e;
}

INLINE u32 pcg(u32 value) {
  const u32 state = value * 747796405u + 2891336453u;
  const u32 word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u;
  return (word >> 22) ^ word;
}

// x / (1 + e^-x)
INLINE v128_t silu(v128_t x) {
  const v128_t one = wasm_f32x4_const_splat(1);
  return wasm_f32x4_div(x, wasm_f32x4_add(one, exp4(wasm_f32x4_neg(x))));
}
// 1 / (1 + e^-x)
INLINE v128_t sigmoid(v128_t x) {
  const v128_t one = wasm_f32x4_const_splat(1);
  return wasm_f32x4_div(one, wasm_f32x4_add(one, exp4(wasm_f32x4_neg(x))));
}
// gelu's approximation by tanh, x / 2 (1 + tanh(y)) with y = sqrt(2 / pi) (x + 0.044715 x^3): that is x / (1 + e^-2y),
// which stays exact near 0 and works for any x, since exp4 clamps.
INLINE v128_t gelu(v128_t x) {
  const v128_t one = wasm_f32x4_const_splat(1);
  const v128_t inner = wasm_f32x4_mul(x, madd(wasm_f32x4_mul(x, x), wasm_f32x4_const_splat(0.044715f), one));
  return wasm_f32x4_div(x, wasm_f32x4_add(one, exp4(wasm_f32x4_mul(inner, wasm_f32x4_const_splat(-1.5957691216057308f)))));
}
enum { SILU = 2, GELU = 3, SIGMOID = 5 };
INLINE v128_t activate(u32 activation, v128_t x) { return activation == GELU ? gelu(x) : silu(x); }

// cap * tanh(x / cap), as cap * (1 - 2 / (e^(2 x / cap) + 1)). The absolute error is under 3e-7 * cap.
INLINE v128_t soft_cap4(v128_t x, f32 cap) {
  const v128_t e = exp4(wasm_f32x4_mul(x, wasm_f32x4_splat(2 / cap)));
  const v128_t part = wasm_f32x4_div(wasm_f32x4_const_splat(2), wasm_f32x4_add(e, wasm_f32x4_const_splat(1)));
  return wasm_f32x4_mul(wasm_f32x4_sub(wasm_f32x4_const_splat(1), part), wasm_f32x4_splat(cap));
}

// 4 halves in the low 8 bytes to float32, subnormals included.
INLINE v128_t halves4(v128_t halves) {
  const v128_t wide = wasm_u32x4_extend_low_u16x8(halves);
  const v128_t sign = wasm_i32x4_shl(wasm_v128_and(wide, wasm_i32x4_const_splat(0x8000)), 16);
  const v128_t body = wasm_i32x4_shl(wasm_v128_and(wide, wasm_i32x4_const_splat(0x7fff)), 13);
  // The exponents' biases differ by 112: multiplying by 2^112 corrects that, for subnormals too.
  return wasm_v128_or(sign, wasm_f32x4_mul(body, wasm_f32x4_const_splat(5.192296858534828e33f)));
}
