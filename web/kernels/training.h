// Shared by the training kernels: matrix products over float32, and the description of a pack of sequences.
// py_core/backends/wasm/training_layout.py has the same numbers for Python.
#pragma once
#include "kernels.h"

// ---- a program's operations; other forward operations are those of kernels.h ----
enum {
  TRAIN_LINEAR = 64, LINEAR_GRADIENT, TRAIN_LORA_DOWN, TRAIN_LORA_UP, LORA_UP_GRADIENT, LORA_DOWN_GRADIENT, PACKED_ATTENTION,
  ATTENTION_GRADIENT_Q, ATTENTION_GRADIENT_KV, NORM_GRADIENT, ROPE_GRADIENT, GLU_GRADIENT, SOFT_CAP_GRADIENT, LOSS_BEGIN,
  LOSS_CHUNKS, LOSS_END, SUM_SQUARES, ADAMW, ADD_FISHER, CLEAR, ADD_PULL, PACKED_CONV, CONV_GRADIENT
};

// Each worker has its own scratch memory; an operation names its beginning in a[13].
enum { SCRATCH_BYTES = 256 << 10 };
INLINE void *scratch_of(const Op *op, const Context *c) { return at(op->a[13] + c->worker * SCRATCH_BYTES); }

// A pack's rows, in addition to the state's: row i sees the prefix and its own sequence, from starts[i] on, up to
// itself.
typedef struct { u32 rows, prefix, loss_rows, unused[13]; } Pack;

// ---- products.c ----
enum { STRIP = 8 };  // columns of B that are processed together
// A, row i and step p at x[i * row + p * step], of which one is 1.
typedef struct { const f32 *x; u32 row, step; } Left;
// B, step p and column j at x[p * step + j]; after each STRIP columns the next ones begin `strip` floats later.
typedef struct { const f32 *x; u32 step, strip; } Right;
INLINE Left by_rows(const f32 *x, u32 stride) { return (Left){x, stride, 1}; }
INLINE Left by_columns(const f32 *x, u32 stride) { return (Left){x, 1, stride}; }
INLINE Right plain(const f32 *x, u32 stride) { return (Right){x, stride, STRIP}; }
INLINE Right strips(const f32 *x, u32 depth) { return (Right){x, STRIP, depth * STRIP}; }

// c[i * stride + j] = plus[i * stride + j] + factor * sum_p A[i, p] B[p, j]; without plus if that is 0.
void product(u32 rows, u32 columns, u32 depth, Left a, Right b, const f32 *plus, f32 factor, f32 *c, u32 stride);
// The transpose of x (columns, depth), in strips: to[(j / STRIP) * depth * STRIP + p * STRIP + j % STRIP] = x[j, p].
// Columns that pad the last strip are 0.
void transposed_strips(const f32 *x, u32 stride, u32 columns, u32 depth, f32 *to);

// ---- training_linear.c: weights as floats, for any kind of matrix; `row` and `first` are multiples of 4 ----
// to[p * STRIP + ...] in strips of STRIP rows of W: B[p, j] = W[row + j, column + p], for `columns` columns (32, 64, ...).
void weights_across(const PackedMatrix *w, u32 row, u32 rows, u32 column, u32 columns, f32 *to);
// In strips of STRIP columns of W: B[p, j] = W[row + p, column + j], for 32 columns.
void weights_down(const PackedMatrix *w, u32 row, u32 rows, u32 column, f32 *to);

// Transposes four rows into four columns.
INLINE void transpose4(v128_t *x) {
  const v128_t a = wasm_i32x4_shuffle(x[0], x[1], 0, 4, 1, 5), b = wasm_i32x4_shuffle(x[2], x[3], 0, 4, 1, 5);
  const v128_t c = wasm_i32x4_shuffle(x[0], x[1], 2, 6, 3, 7), d = wasm_i32x4_shuffle(x[2], x[3], 2, 6, 3, 7);
  x[0] = wasm_i64x2_shuffle(a, b, 0, 2), x[1] = wasm_i64x2_shuffle(a, b, 1, 3);
  x[2] = wasm_i64x2_shuffle(c, d, 0, 2), x[3] = wasm_i64x2_shuffle(c, d, 1, 3);
}

// Stores the first `left` numbers of a vector, if it has more.
INLINE void store_some(f32 *to, v128_t numbers, u32 left) {
  if (left >= 4) { wasm_v128_store(to, numbers); return; }
  if (left & 2) wasm_v128_store64_lane(to, numbers, 0);
  if (left == 1) wasm_v128_store32_lane(to, numbers, 0);
  if (left == 3) wasm_v128_store32_lane(to + 2, numbers, 2);
}
