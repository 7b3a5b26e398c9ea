// Blocks of 4-bit codes.
#import nibble_codes
struct Block { nibbles: vec4u, scale: vec2f, offset: vec2f }
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  let word = b.nibbles[w];
  return array<vec4f, 2>(nibble_codes(word, vec4u()), nibble_codes(word >> 4u, vec4u()));
}
const TWO_SCALES = false;
const UNIT = 16.0;
const MIDDLE = 8.0 - BIAS;
fn packed_codes(b: Block) -> array<vec4u, 2> {
  const NIBBLES = vec4u(0xf0f0f0f0u);
  const SIGNS = vec4u(0x80808080u);
  return array<vec4u, 2>(((b.nibbles << vec4u(4u)) & NIBBLES) ^ SIGNS, (b.nibbles & NIBBLES) ^ SIGNS);
}
