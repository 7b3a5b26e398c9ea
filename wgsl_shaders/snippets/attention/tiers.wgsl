// Keys and values of pages that are hot or demoted (py_core/paging/tiers.py): value = offset + scale * code.
// The number of a page has its tier from bit TIER_SHIFT on. The bits below are the place of a hot page in kv, or that
// of a demoted one in `demoted`, whose places have the size of a cold page; a warm page takes two.
// A demoted page is [kv head]: the codes of its keys, those of its values, (scale, offset) of each channel of the keys,
// then of each position of the values: a word of two halves each. In a warm page a word is the four codes of a quad,
// [position][quad]; a word of a cold one has the nibbles of a quad of two positions, [position / 2][quad].
// Needs kv: array<vec4f>, demoted: array<u32>. Constants: KV_HEADS, HEAD_DIM, PAGE, TIER_SHIFT.
#import page_layout
#import halves
const HOT = 0u;
const WARM = 1u;
const COLD = 2u;
const PAGE_QUADS = PAGE * HEAD_DIM / 4u;
const PLACE_WORDS = KV_HEADS * (PAGE_QUADS + HEAD_DIM + PAGE);

fn tier_of(page: u32) -> u32 { return page >> TIER_SHIFT; }

// Words of the codes of a head's keys, or of its values.
fn plane_words(tier: u32) -> u32 { return select(PAGE_QUADS / 2u, PAGE_QUADS, tier == WARM); }
// The start of a head in a demoted page; the functions below give offsets from there.
fn head_place(page: u32, head: u32) -> u32 {
  let words = 2u * plane_words(tier_of(page)) + HEAD_DIM + PAGE;
  return (page & ((1u << TIER_SHIFT) - 1u)) * PLACE_WORDS + head * words;
}
fn codes_at(tier: u32, which: u32, position: u32, quad: u32) -> u32 {
  let line = select(position / 2u, position, tier == WARM);
  return which * plane_words(tier) + line * (HEAD_DIM / 4u) + quad;
}
fn key_scales_at(tier: u32, quad: u32) -> u32 { return 2u * plane_words(tier) + 4u * quad; }
fn value_scale_at(tier: u32, position: u32) -> u32 { return 2u * plane_words(tier) + HEAD_DIM + position; }

// A quad as it was read. words: the floats of a hot page; otherwise scales and offsets: for a key, of its four
// channels, for a value, of its position. `first`: the bit at which the quad begins in its word of codes.
struct Quad { words: vec4u, codes: u32, first: u32, tier: u32 }

fn read_quad(page: u32, position: u32, head: u32, which: u32, quad: u32) -> Quad {
  let tier = tier_of(page);
  if (tier == HOT) { return Quad(bitcast<vec4u>(kv[index_in(page, position, head, which) + quad]), 0u, 0u, HOT); }
  let place = head_place(page, head);
  let row = position % PAGE;
  let codes = demoted[place + codes_at(tier, which, row, quad)];
  let first = select(row % 2u * 16u, 0u, tier == WARM);
  if (which == 0u) {
    let at = place + key_scales_at(tier, quad);
    return Quad(vec4u(demoted[at], demoted[at + 1u], demoted[at + 2u], demoted[at + 3u]), codes, first, tier);
  }
  return Quad(vec4u(demoted[place + value_scale_at(tier, row)], 0u, 0u, 0u), codes, first, tier);
}

fn floats_of(quad: Quad, which: u32) -> vec4f {
  if (quad.tier == HOT) { return bitcast<vec4f>(quad.words); }
  let is_warm = quad.tier == WARM;
  let shifts = select(vec4u(0u, 4u, 8u, 12u), vec4u(0u, 8u, 16u, 24u), is_warm) + quad.first;
  let codes = vec4f((vec4u(quad.codes) >> shifts) & vec4u(select(15u, 127u, is_warm)));
  let x = halves(quad.words.x);
  if (which == 1u) { return x.y + x.x * codes; }
  let y = halves(quad.words.y);
  let z = halves(quad.words.z);
  let w = halves(quad.words.w);
  return vec4f(x.y, y.y, z.y, w.y) + vec4f(x.x, y.x, z.x, w.x) * codes;
}

fn quad_of(floats: vec4f) -> Quad { return Quad(bitcast<vec4u>(floats), 0u, 0u, HOT); }
