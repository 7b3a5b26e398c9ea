// The layout in which `quantize` stores a linear's activations, for everything that reads them.
#pragma once
#include "kernels.h"

// Quantized activations are stored in tiles: a single row, or four rows together (LANES rows). For each block of 32
// columns a tile has 32 * limbs bytes per row. After the bytes of all tiles come, in the same order, all scales s, then
// all t = s * sum(q), then all u, the first 16 columns' part of t.
// If products of 16 bits are faster for some weights (WIDE), precise activations are also stored in 16 bits, after all
// u: for each block of a tile, 32 numbers of each row.
typedef struct { uint8_t *q; f32 *s, *t, *u, *x; int16_t *wide; u32 columns, limbs, lanes; } Activations;

static inline Activations activations(u32 address, u32 columns, u32 rows, u32 mode) {
  Activations a = {0};
  a.columns = columns;
  if (mode == FLOAT) { a.x = at(address); return a; }
  a.limbs = mode;
  a.lanes = rows == 1 ? 1 : 4;
  rows = (rows + a.lanes - 1) / a.lanes * a.lanes;
  a.q = at(address);
  a.s = (f32 *)(a.q + rows * columns * mode);
  a.t = a.s + rows * (columns / 32);
  a.u = a.t + rows * (columns / 32);
  a.wide = (int16_t *)(a.u + rows * (columns / 32));
  return a;
}
