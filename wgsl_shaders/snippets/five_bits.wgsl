// Blocks of 5-bit codes, bit j of `fifths` that of value j: value = scale * q + offset
#import low_nibbles
struct Block { nibbles: vec4u, fifths: u32, scale: f32, offset: f32 }
fn fifth_bits(fifths: u32) -> vec4u {
  return (vec4u(fifths, fifths >> 1u, fifths >> 2u, fifths >> 3u) & vec4u(1u)) << vec4u(4u);
}
// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  let word = b.nibbles[w];
  let fifths = b.fifths >> (4u * w);
  return array<vec4f, 2>(b.scale * vec4f(low_nibbles(word) | fifth_bits(fifths)) + b.offset,
                         b.scale * vec4f(low_nibbles(word >> 4u) | fifth_bits(fifths >> 16u)) + b.offset);
}
