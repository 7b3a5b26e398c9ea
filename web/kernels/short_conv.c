// A convolution over the last positions, whose rows lie in the pages of a sequence.
#include "pages.h"

enum { MOST_TAPS = 8 };

// The place of a layer's rows: `base` in extent 0, and extents of `pages` pages of `rows` rows. The table has `max_pages`
// entries for each sequence.
typedef struct { u32 base, rows, extent_bytes, pages, max_pages; const u32 *table; } RowsLayer;

// s[m, i] = sum over j of weight[i, j] * z[t - taps + 1 + j, i] for a row m at position t. If it is gated, y = c * s and
// z = b * u for the thirds b, c, u of a row of x; if not, y = silu(s) and z = x. z is 0 before the sequence. The rows of
// z are kept: position p's at row p % rows of its page, where p counts from the page's beginning.
// Each worker has channels of its own, and goes through the rows in order: it finds those before a row, which may be
// of the same pass, where it has put them.
// a: x, y, width (a multiple of 4), weights [4 channels][tap][channel], taps, RowsLayer, 1 if gated
void short_conv(const Op *op, const Context *c) {
  const u32 width = op->a[2], taps = op->a[4], quads = width / 4, gated = op->a[6];
  const RowsLayer *k = at(op->a[5]);
  const u32 begin = quads * c->worker / c->workers * 4, end = quads * (c->worker + 1) / c->workers * 4;
  for (u32 m = 0; m < c->m; m++) {
    const u32 slot = c->state->rows[m].slot, position = c->state->rows[m].position;
    f32 *rows[MOST_TAPS];  // those of the positions position - taps + 1 .. position, from `first` on
    const u32 first = position + 1 < taps ? taps - 1 - position : 0;
    for (u32 j = first; j < taps; j++) {
      const u32 p = position + 1 + j - taps, entry = k->table[slot * k->max_pages + p / PAGE];
      const u32 row = entry % k->pages * k->rows + p % PAGE % k->rows;
      rows[j] = (f32 *)at(k->base + entry / k->pages * k->extent_bytes) + row * width;
    }
    const f32 *x = (f32 *)at(op->a[0]) + m * (gated ? 3 : 1) * width;
    f32 *y = (f32 *)at(op->a[1]) + m * width;
    for (u32 i = begin; i < end; i += 4) {
      const f32 *weight = (f32 *)at(op->a[3]) + i * taps;
      wasm_v128_store(rows[taps - 1] + i, gated ? wasm_f32x4_mul(load(x + i), load(x + 2 * width + i)) : load(x + i));
      v128_t sum = wasm_f32x4_const_splat(0);
      for (u32 j = first; j < taps; j++) sum = madd(load(weight + 4 * j), load(rows[j] + i), sum);
      wasm_v128_store(y + i, gated ? wasm_f32x4_mul(load(x + width + i), sum) : silu(sum));
    }
  }
}
