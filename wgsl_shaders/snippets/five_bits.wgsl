// Blocks of 5-bit codes, bit j of `fifths` that of value j.
#import nibble_codes
struct Block { nibbles: vec4u, fifths: u32, scale: vec2f, offset: f32 }
fn fifth_bits(fifths: u32) -> vec4u {
  return vec4u(fifths << 4u, fifths << 11u, fifths << 2u, fifths << 9u) & vec4u(0x10u, 0x1000u, 0x10u, 0x1000u);
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  let word = b.nibbles[w];
  let fifths = b.fifths >> (4u * w);
  return array<vec4f, 2>(nibble_codes(word, fifth_bits(fifths)), nibble_codes(word >> 4u, fifth_bits(fifths >> 16u)));
}
