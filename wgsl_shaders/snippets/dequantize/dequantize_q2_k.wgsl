// Q2_K: value = d * s * q - m * t, with s and t for values 0..15 and for 16..31, each pair in a byte: s in the low
// nibble.
#import two_bits
#import halves
const BIAS = 0.0;
const OFFSETS = true;
const TWO_SCALES = true;
struct Block { codes: vec2u, scale: vec2f, offset: vec2f }
fn load_block(row: u32, column: u32) -> Block {
  let bytes = scales[word_of(row, column, 2u)] >> (place_of(row, column, 2u) * 16u);
  let dm = halves(scales[BLOCKS / 2u + word_of(row, column, 8u)]);
  let s = vec2f(vec2u(bytes & 15u, (bytes >> 8u) & 15u));
  let t = vec2f(vec2u((bytes >> 4u) & 15u, (bytes >> 12u) & 15u));
  return Block(two_bits(row, column), dm.x * s, -(dm.y * t));
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> { return two_bit_codes(b.codes, w); }
const UNIT = 64.0;
const MIDDLE = 2.0 - BIAS;
fn packed_codes(b: Block) -> array<vec4u, 2> {
  const CODES = vec4u(0xc0c0c0c0u);
  const SIGNS = vec4u(0x80808080u);
  const UP = vec4u(6u, 4u, 2u, 0u);
  return array<vec4u, 2>(
    ((vec4u(b.codes.x) << UP) & CODES) ^ SIGNS, ((vec4u(b.codes.y) << UP) & CODES) ^ SIGNS);
}
