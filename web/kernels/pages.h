// The layout of pages of keys and values, hot and demoted.
#pragma once
#include "kernels.h"

enum { PAGE = 64, MOST_HEAD_DIM = 512 };
// Keys and values of a HOT page are integers of one int8 limb (fast) or two (precise: 128 * first + second, as good as
// float32 for the result), with a scale for each vector. So scores and sums are dot products of bytes.
// Pages are stored in extents, [extent][layer][kv head][page], so that a head's keys and values are read in long
// runs. A page holds keys [positions][4 dims][2][16 bytes] and values [dims][4 positions][2][16 bytes]. The lanes of a
// vector are 4 positions of keys or 4 dims of values; the bytes of a lane are 4 dims or 4 positions. Two vectors
// together hold 8 positions or dims (one limb), or both limbs of 4, so that a page is read from its first byte to its
// last. After them come the scales of the keys, their offsets, and the scales of the values, each for all positions.
// If products of bytes take long (WHOLE), both limbs are one number of 16 bits: keys [positions][2 dims][16 bytes] and
// values [dims][2 positions][16 bytes], four lanes of two numbers each, and the offsets of the keys are 0.
//
// A page that filled up long ago is demoted (demote.c): to codes of 7 bits, a byte each (WARM, laid out like one limb),
// or of 4 (COLD: a byte holds two codes, 16 apart in that order). As in KIVI (arXiv 2402.02750), keys have a scale and
// an offset for each dim, and values for each position: value = offset + scale * code. The halves after the codes are
// the scales and the offsets of the keys, then those of the values.
#define WHOLE(limbs) ((limbs) == 2 && WIDE(8))
enum { HOT, WARM, COLD, TIERS };
// Forms of codes: limbs of hot pages are forms 1 and 2.
enum { ONE_LIMB = 1, TWO_LIMBS = 2, BYTES = 3, HALF_BYTES = 4 };

// The parameters of a layer's attention. head_dim: values of a head in pages and queries. The model has the first
// `size`; the others, up to a multiple of 8, are zeros. `base` is its part of extent 0; a window or softcap of 0 means
// none. An extent holds `pages` consecutive pages of a head, of `head_bytes` each, all of one tier. An entry of the
// table has the tier in its two highest bits, and `pages` * (the part in which the extent begins) + the page's place in
// it.
typedef struct {
  u32 heads, kv_heads, head_dim, max_pages, limbs;
  u32 extent_bytes, base;
  const u32 *table;
  u32 window;
  f32 softcap, scale;
  u32 pages[TIERS], head_bytes[TIERS];
  u32 size;
} Layer;

INLINE u32 page_tier(const Layer *k, u32 slot, u32 position) { return k->table[slot * k->max_pages + position / PAGE] >> 30; }
INLINE uint8_t *head_page(const Layer *k, u32 slot, u32 position, u32 kv_head) {
  const u32 entry = k->table[slot * k->max_pages + position / PAGE], tier = entry >> 30, page = entry & 0x3fffffff;
  const u32 pages = k->pages[tier];
  return (uint8_t *)at(k->base + page / pages * k->extent_bytes + (kv_head * pages + page % pages) * k->head_bytes[tier]);
}
