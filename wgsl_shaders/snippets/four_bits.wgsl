// Blocks of 4-bit codes.
#import nibble_codes
struct Block { nibbles: vec4u, scale: vec2f, offset: f32 }
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  let word = b.nibbles[w];
  return array<vec4f, 2>(nibble_codes(word, vec4u()), nibble_codes(word >> 4u, vec4u()));
}
