// Blocks of 5-bit codes: bit w of byte j of `fifths` is the fifth bit of value 4w + j.
#import nibble_codes
struct Block { nibbles: vec4u, fifths: u32, scale: vec2f, offset: vec2f }
fn fifth_bits(fifths: u32) -> vec4u {
  return vec4u(fifths << 4u, fifths << 4u, fifths >> 12u, fifths >> 12u) & vec4u(0x10u, 0x1000u, 0x10u, 0x1000u);
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  let word = b.nibbles[w];
  let fifths = b.fifths >> w;
  return array<vec4f, 2>(nibble_codes(word, fifth_bits(fifths)), nibble_codes(word >> 4u, fifth_bits(fifths >> 4u)));
}
const TWO_SCALES = false;
const UNIT = 8.0;
const MIDDLE = 16.0 - BIAS;
fn packed_codes(b: Block) -> array<vec4u, 2> {
  const NIBBLES = vec4u(0x78787878u);
  const SIGNS = vec4u(0x80808080u);
  let fifths = vec4u(b.fifths);
  return array<vec4u, 2>(
    (((b.nibbles << vec4u(3u)) & NIBBLES) | ((fifths << vec4u(7u, 6u, 5u, 4u)) & SIGNS)) ^ SIGNS,
    (((b.nibbles >> vec4u(1u)) & NIBBLES) | ((fifths << vec4u(3u, 2u, 1u, 0u)) & SIGNS)) ^ SIGNS);
}
