// Converts weights from a GGUF's blocks to the layout of kernels.h, and gathers rows for the embedding.
#include "kernels.h"

// ggml's type numbers.
enum {
  GGML_F32 = 0, GGML_F16 = 1, GGML_Q4_0 = 2, GGML_Q4_1 = 3, GGML_Q5_0 = 6, GGML_Q5_1 = 7, GGML_Q8_0 = 8, GGML_Q2_K = 10,
  GGML_Q3_K = 11, GGML_Q4_K = 12, GGML_Q5_K = 13, GGML_Q6_K = 14, GGML_IQ4_NL = 20, GGML_IQ4_XS = 23, GGML_BF16 = 30,
  GGML_TQ1_0 = 34, GGML_TQ2_0 = 35, GGML_MXFP4 = 39
};

INLINE f32 half(const uint8_t *p) {
  return wasm_f32x4_extract_lane(halves4(wasm_v128_load16_splat(p)), 0);
}

INLINE u32 word(const uint8_t *p) { return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24; }

static u32 kind_of(u32 format) {
  switch (format) {
    case GGML_F32: return FLOAT32;
    case GGML_F16: return FLOAT16;
    case GGML_BF16: return BFLOAT16;
    case GGML_Q4_0: case GGML_Q4_1: case GGML_Q4_K: case GGML_TQ1_0: case GGML_TQ2_0: return NIBBLES;
    case GGML_Q2_K: case GGML_Q3_K: return SPLIT;
    case GGML_Q5_0: case GGML_Q5_1: case GGML_Q5_K: case GGML_MXFP4: return FIVES;
    case GGML_Q6_K: return SIXES;
    default: return EIGHTS;
  }
}

static u32 row_bytes_of(u32 format, u32 columns) {
  switch (format) {
    case GGML_F32: return columns * 4;
    case GGML_F16: case GGML_BF16: return columns * 2;
    case GGML_Q4_0: case GGML_IQ4_NL: return columns / 32 * 18;
    case GGML_MXFP4: return columns / 32 * 17;
    case GGML_Q4_1: return columns / 32 * 20;
    case GGML_Q5_0: return columns / 32 * 22;
    case GGML_Q5_1: return columns / 32 * 24;
    case GGML_Q8_0: return columns / 32 * 34;
    case GGML_Q2_K: return columns / 256 * 84;
    case GGML_TQ1_0: return columns / 256 * 54;
    case GGML_TQ2_0: return columns / 256 * 66;
    case GGML_Q3_K: return columns / 256 * 110;
    case GGML_IQ4_XS: return columns / 256 * 136;
    case GGML_Q4_K: return columns / 256 * 144;
    case GGML_Q5_K: return columns / 256 * 176;
    default: return columns / 256 * 210;
  }
}

// A block of 32 values as in kernels.h: value = d[i / 16] * q + m[i / 16].
typedef struct { uint8_t q[32]; f32 d[2], m[2]; } Block;

static void both(Block *out, f32 d, f32 m) {
  out->d[0] = out->d[1] = d;
  out->m[0] = out->m[1] = m;
}

// The low nibbles are the first 16 values, the high ones the others; bit i of `fifth` belongs to value i.
static void nibbles(Block *out, const uint8_t *in, u32 fifth) {
  for (u32 i = 0; i < 16; i++) {
    out->q[i] = (uint8_t)((in[i] & 15) | (fifth >> i & 1) << 4);
    out->q[i + 16] = (uint8_t)(in[i] >> 4 | (fifth >> (i + 16) & 1) << 4);
  }
}

// The values of the codes: of IQ4_NL and IQ4_XS, plus 128; of MXFP4, plus 12: unsigned.
static const uint8_t IQ4_VALUES[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t MXFP4_VALUES[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

static void table_codes(Block *out, const uint8_t *in, const uint8_t *values, f32 zero, f32 d) {
  nibbles(out, in, 0);
  for (u32 i = 0; i < 32; i++) out->q[i] = values[out->q[i]];
  both(out, d, -zero * d);
}

// Code i of a block of TQ1_0: a byte is a fraction of 256, its codes are the digits in base 3.
static uint8_t ternary_code(const uint8_t *in, u32 i) {
  static const uint8_t POWERS[5] = {1, 3, 9, 27, 81};
  const u32 start = i < 160 ? 0 : i < 240 ? 160 : 240, run = i < 160 ? 32 : i < 240 ? 16 : 4;
  const uint8_t left = (uint8_t)(in[start / 5 + (i - start) % run] * POWERS[(i - start) / run]);
  return (uint8_t)(left * 3 >> 8);
}

// Block b of a row, as py_core/formats/quantization/blocks.py describes the formats.
static void unpack(u32 format, const uint8_t *row, u32 b, Block *out) {
  const uint8_t *in;
  switch (format) {
    case GGML_Q4_0: in = row + b * 18; nibbles(out, in + 2, 0); both(out, half(in), -8 * half(in)); break;
    case GGML_Q4_1: in = row + b * 20; nibbles(out, in + 4, 0); both(out, half(in), half(in + 2)); break;
    case GGML_Q5_0: in = row + b * 22; nibbles(out, in + 6, word(in + 2)); both(out, half(in), -16 * half(in)); break;
    case GGML_Q5_1: in = row + b * 24; nibbles(out, in + 8, word(in + 4)); both(out, half(in), half(in + 2)); break;
    case GGML_Q8_0:
      in = row + b * 34;
      for (u32 i = 0; i < 32; i++) out->q[i] = in[2 + i] ^ 128;
      both(out, half(in), -128 * half(in));
      break;
    case GGML_IQ4_NL: in = row + b * 18; table_codes(out, in + 2, IQ4_VALUES, 128, half(in)); break;
    case GGML_MXFP4: {
      in = row + b * 17;
      const u32 e = in[0];  // d = 2^(e - 128)
      table_codes(out, in + 1, MXFP4_VALUES, 12, real(e < 2 ? 0x200000u << e : (e - 1) << 23));
      break;
    }
    case GGML_IQ4_XS: {
      const u32 i = b % 8;
      in = row + b / 8 * 136;
      const u32 s = (in[4 + i / 2] >> (i % 2 * 4) & 15) | (in[2 + i / 4] >> (i % 4 * 2) & 3) << 4;
      table_codes(out, in + 8 + i * 16, IQ4_VALUES, 128, half(in) * ((f32)s - 32));
      break;
    }
    case GGML_TQ1_0:
      in = row + b / 8 * 54;
      for (u32 j = 0; j < 32; j++) out->q[j] = ternary_code(in, b % 8 * 32 + j);
      both(out, half(in + 52), -half(in + 52));
      break;
    case GGML_TQ2_0:
      in = row + b / 8 * 66;
      for (u32 j = 0; j < 32; j++) out->q[j] = in[b % 8 / 4 * 32 + j] >> (b % 4 * 2) & 3;
      both(out, half(in + 64), -half(in + 64));
      break;
    case GGML_Q2_K: case GGML_Q3_K: {
      const u32 third = format == GGML_Q3_K, i = b % 8;
      in = row + b / 8 * (third ? 110 : 84);
      const uint8_t *codes = in + (third ? 32 : 16) + i / 4 * 32, *scales = in + 96;
      for (u32 j = 0; j < 32; j++)
        out->q[j] = (uint8_t)((codes[j] >> (i % 4 * 2) & 3) | (third ? (in[j] >> i & 1) << 2 : 0));
      for (u32 part = 0; part < 2; part++) {
        const u32 g = i * 2 + part;
        if (third) {
          const u32 s = (scales[g % 8] >> (g / 8 * 4) & 15) | (scales[8 + g % 4] >> (g / 4 * 2) & 3) << 4;
          out->d[part] = half(in + 108) * ((f32)s - 32);
          out->m[part] = -4 * out->d[part];
        } else {
          out->d[part] = half(in + 80) * (f32)(in[g] & 15);
          out->m[part] = -half(in + 82) * (f32)(in[g] >> 4);
        }
      }
      break;
    }
    case GGML_Q4_K: case GGML_Q5_K: {
      const u32 i = b % 8, fifth = format == GGML_Q5_K;
      in = row + b / 8 * (fifth ? 176 : 144);
      const uint8_t *scales = in + 4, *codes = in + (fifth ? 48 : 16) + i / 2 * 32;
      const u32 s = i < 4 ? scales[i] & 63 : (scales[i + 4] & 15) | scales[i - 4] >> 6 << 4;
      const u32 t = i < 4 ? scales[i + 4] & 63 : scales[i + 4] >> 4 | scales[i] >> 6 << 4;
      for (u32 j = 0; j < 32; j++) {
        const u32 upper = fifth ? in[16 + j] >> i & 1 : 0;
        out->q[j] = (uint8_t)((i % 2 ? codes[j] >> 4 : codes[j] & 15) | upper << 4);
      }
      both(out, half(in) * (f32)s, -half(in + 2) * (f32)t);
      break;
    }
    default: {  // Q6_K
      in = row + b / 8 * 210;
      const u32 side = b % 8 / 4, first = b % 4 * 32;  // which half of the 256 values; the block's start in it
      for (u32 j = 0; j < 32; j++) {
        const uint8_t code = in[side * 64 + (first + j) % 64], upper = in[128 + side * 32 + j] >> (first / 32 * 2) & 3;
        out->q[j] = (uint8_t)((first < 64 ? code & 15 : code >> 4) | upper << 4);
      }
      for (u32 part = 0; part < 2; part++) {
        out->d[part] = half(in + 208) * (f32)(int8_t)in[192 + b % 8 * 2 + part];
        out->m[part] = -32 * out->d[part];
      }
    }
  }
}

// Converts `rows` rows into the rows from first_row on of a matrix whose row 0 is at target. Rows that pad the last
// group keep their zeros.
void EXPORT(repack)(u32 format, u32 source, u32 target, u32 first_row, u32 rows, u32 columns) {
  const uint8_t *in = at(source);
  const u32 blocks = columns / 32, kind = kind_of(format), bits = bits_of(kind), block_bytes = block_bytes_of(kind);
  const u32 row_bytes = row_bytes_of(format, columns);
  for (u32 r = 0; r < rows; r++, in += row_bytes) {
    const u32 row = first_row + r, lane = row % 4;
    if (kind >= FLOAT32) {
      const u32 bytes = kind == FLOAT32 ? 4 : 2;
      uint8_t *out = (uint8_t *)at(target) + (row - lane) * columns * bytes + lane * bytes;
      for (u32 c = 0; c < columns; c++, out += 4 * bytes) __builtin_memcpy(out, in + c * bytes, bytes);
      continue;
    }
    uint8_t *band = (uint8_t *)at(target) + row / 16 * blocks * block_bytes;
    for (u32 b = 0; b < blocks; b++, band += block_bytes) {
      uint8_t *group = band + row % 16 / 4 * bits * 16 + lane * 4;
      f32 *scale = (f32 *)(band + bits * 64) + row % 16;
      Block block;
      unpack(format, in, b, &block);
      for (u32 i = 0; i < 16; i++) {
        const u32 first = block.q[i], second = block.q[i + 16], k = i / 4 * 2;
        uint8_t *byte = group + i / 4 * 16 + i % 4, *upper = group + 64 + i % 4;
        *byte = (uint8_t)((first & 15) | second << 4);
        if (kind == EIGHTS) byte[64] = (uint8_t)(first >> 4 | (second & 240));
        if (kind == FIVES) *upper = (uint8_t)((k ? *upper : 0) | (first >> 4 | second >> 4 << 1) << k);
        if (kind == SIXES) {
          uint8_t *of_four = upper + k / 4 * 16;
          *of_four = (uint8_t)((k % 4 ? *of_four : 0) | (first >> 4 | second >> 4 << 2) << k % 4 * 2);
        }
      }
      scale[0] = block.d[0];
      scale[16] = is_split(kind) ? block.d[1] : block.m[0];
      if (kind == SPLIT) {
        scale[32] = block.m[1];
        scale[48] = block.m[0] - block.m[1];
      }
    }
  }
}

static f32 value(const PackedMatrix *w, u32 row, u32 column) {
  const u32 lane = row % 4, b = column / 32, c = column % 32, bits = bits_of(w->kind);
  const u32 element = (row - lane) * w->columns + column * 4 + lane;
  if (w->kind == FLOAT32) return ((f32 *)at(w->data))[element];
  if (w->kind == FLOAT16) return half((uint8_t *)at(w->data) + element * 2);
  if (w->kind == BFLOAT16) return __builtin_bit_cast(f32, (u32)((uint16_t *)at(w->data))[element] << 16);
  const uint8_t *band = (uint8_t *)at(w->data) + (row / 16 * (w->columns / 32) + b) * block_bytes_of(w->kind);
  const uint8_t *byte = band + row % 16 / 4 * bits * 16 + c % 16 / 4 * 16 + lane * 4 + c % 4;
  const uint8_t *upper = band + row % 16 / 4 * bits * 16 + 64 + lane * 4 + c % 4;
  const f32 *scale = (f32 *)(band + bits * 64) + row % 16;
  const u32 high = c / 16, k = c % 16 / 4 * 2 + high;
  u32 q = *byte >> 4 * high & 15;
  if (w->kind == EIGHTS) q |= (byte[64] >> 4 * high & 15u) << 4;
  if (w->kind == FIVES) q |= (*upper >> k & 1u) << 4;
  if (w->kind == SIXES) q |= (upper[k / 4 * 16] >> k % 4 * 2 & 3u) << 4;
  if (w->kind == SIXES) return scale[16 * high] * ((f32)q - 32);
  if (w->kind != SPLIT) return scale[0] * (f32)q + scale[16];
  return high ? scale[16] * (f32)q + scale[32] : scale[0] * (f32)q + (scale[32] + scale[48]);
}

// x[m, :] = scale * table[token[m], :].  a: matrix, x, scale
void embed(const Op *op, const Context *c) {
  const PackedMatrix *table = at(op->a[0]);
  f32 *x = at(op->a[1]);
  const f32 scale = real(op->a[2]);
  for (u32 m = c->worker; m < c->m; m += c->workers)
    for (u32 i = 0; i < table->columns; i++) x[m * table->columns + i] = scale * value(table, c->state->rows[m].token, i);
}
