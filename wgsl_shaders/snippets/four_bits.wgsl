// Blocks of 4-bit codes: value = scale * q + offset
#import low_nibbles
struct Block { nibbles: vec4u, scale: f32, offset: f32 }
// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  let word = b.nibbles[w];
  return array<vec4f, 2>(b.scale * vec4f(low_nibbles(word)) + b.offset,
                         b.scale * vec4f(low_nibbles(word >> 4u)) + b.offset);
}
