// Brings weights from a GGUF's blocks into the layout of kernels.h, and gathers rows for the embedding.
#include "kernels.h"

// The numbers of ggml's types.
enum { GGML_F32 = 0, GGML_F16 = 1, GGML_Q4_0 = 2, GGML_Q4_1 = 3, GGML_Q8_0 = 8 };

INLINE f32 half(const uint8_t *p) {
  return wasm_f32x4_extract_lane(halves4(wasm_v128_load16_splat(p)), 0);
}

INLINE u32 word(const uint8_t *p) { return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24; }

// Rows first_row .. first_row + rows of a matrix whose row 0 lies at target. first_row is a multiple of 4; rows that fill
// up the last group are left as they are (zero).
void EXPORT(repack)(u32 format, u32 source, u32 target, u32 first_row, u32 rows, u32 columns) {
  const uint8_t *in = at(source);
  const u32 blocks = columns / 32;
  for (u32 r = 0; r < rows; r++) {
    const u32 row = first_row + r, lane = row % 4;
    if (format == GGML_F32 || format == GGML_F16) {
      const u32 bytes = format == GGML_F32 ? 4 : 2;
      uint8_t *out = (uint8_t *)at(target) + (row - lane) * columns * bytes + lane * bytes;
      for (u32 c = 0; c < columns; c++, in += bytes, out += 4 * bytes) __builtin_memcpy(out, in, bytes);
      continue;
    }
    const u32 planes = format == GGML_Q8_0 ? 2 : 1, block_bytes = planes * 256 + 128, group = row % 16 / 4;
    uint8_t *band = (uint8_t *)at(target) + row / 16 * blocks * block_bytes;
    for (u32 b = 0; b < blocks; b++, band += block_bytes) {
      u32 *nibbles = (u32 *)(band + group * planes * 64);
      f32 *scale = (f32 *)(band + planes * 256) + group * 4;
      f32 d = half(in), m;
      in += 2;
      if (format == GGML_Q8_0) {
        // q + 128 as two nibbles, each plane in Q4's order of columns
        for (u32 v = 0; v < 4; v++) {
          u32 low = 0, high = 0;
          for (u32 i = 0; i < 4; i++) {
            const u32 a = in[4 * v + i] ^ 128, z = in[16 + 4 * v + i] ^ 128;
            low |= ((a & 15) | (z & 15) << 4) << (8 * i);
            high |= ((a >> 4) | (z >> 4) << 4) << (8 * i);
          }
          nibbles[4 * v + lane] = low;
          nibbles[16 + 4 * v + lane] = high;
        }
        in += 32;
        m = -128 * d;
      } else {
        m = -8 * d;
        if (format == GGML_Q4_1) { m = half(in); in += 2; }
        for (u32 v = 0; v < 4; v++, in += 4) nibbles[4 * v + lane] = word(in);
      }
      scale[lane] = d;
      scale[16 + lane] = m;
    }
  }
}

static f32 value(const Matrix *w, u32 row, u32 column) {
  const u32 lane = row % 4, b = column / 32, c = column % 32;
  if (w->kind == FLOAT32) return ((f32 *)at(w->data))[(row - lane) * w->columns + column * 4 + lane];
  if (w->kind == FLOAT16) return half((uint8_t *)at(w->data) + ((row - lane) * w->columns + column * 4 + lane) * 2);
  const u32 block_bytes = w->kind * 256 + 128;
  const uint8_t *band = (uint8_t *)at(w->data) + (row / 16 * (w->columns / 32) + b) * block_bytes;
  const uint8_t *group = band + row % 16 / 4 * w->kind * 64;
  const f32 *scale = (f32 *)(band + w->kind * 256) + row % 16 / 4 * 4;
  u32 q = 0;
  for (u32 plane = 0; plane < w->kind; plane++) {
    const uint8_t byte = group[plane * 64 + c % 16 / 4 * 16 + lane * 4 + c % 4];
    q |= (u32)(c < 16 ? byte & 15 : byte >> 4) << (4 * plane);
  }
  return scale[lane] * (f32)q + scale[16 + lane];
}

// x[m, :] = table[token[m], :].  a: matrix, x
void embed(const Op *op, const Context *c) {
  const Matrix *table = at(op->a[0]);
  f32 *x = at(op->a[1]);
  for (u32 m = c->worker; m < c->m; m += c->workers)
    for (u32 i = 0; i < table->columns; i++) x[m * table->columns + i] = value(table, c->state->rows[m].token, i);
}

// Distances of a query to `count` vectors of `size` floats, for routing. metric 0: dot product, 1: squared L2.
void EXPORT(distances)(u32 query, u32 vectors, u32 count, u32 size, u32 metric, u32 out) {
  const f32 *q = at(query), *v = at(vectors);
  for (u32 n = 0; n < count; n++, v += size) {
    v128_t sum = wasm_f32x4_const_splat(0), sum2 = sum;
    u32 i = 0;
    for (; i + 8 <= size; i += 8) {
      v128_t a = load(v + i), b = load(v + i + 4);
      if (metric) {
        a = wasm_f32x4_sub(a, load(q + i));
        b = wasm_f32x4_sub(b, load(q + i + 4));
        sum = madd(a, a, sum);
        sum2 = madd(b, b, sum2);
      } else {
        sum = madd(a, load(q + i), sum);
        sum2 = madd(b, load(q + i + 4), sum2);
      }
    }
    f32 total = sum4(wasm_f32x4_add(sum, sum2));
    for (; i < size; i++) total += metric ? (v[i] - q[i]) * (v[i] - q[i]) : v[i] * q[i];
    ((f32 *)at(out))[n] = total;
  }
}
