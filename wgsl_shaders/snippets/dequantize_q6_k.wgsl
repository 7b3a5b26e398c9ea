// Q6_K: value = d * s * (q - 32), with an s for values 0..15 and one for 16..31.
#import nibble_codes
#import halves
const BIAS = 32.0;
const OFFSETS = false;
struct Block { nibbles: vec4u, uppers: vec2u, scale: vec2f, offset: f32 }
fn load_block(block: u32) -> Block {
  let high = BLOCKS / 2u + BLOCKS / 8u + 2u * block;
  let s = bitcast<i32>(scales[block / 2u] << (16u - block % 2u * 16u));
  let d = halves(scales[BLOCKS / 2u + block / 8u]).x;
  return Block(
    quants[block], vec2u(scales[high], scales[high + 1u]), d * vec2f(vec2i((s << 8u) >> 24u, s >> 24u)), 0.0);
}
fn upper_bits(uppers: u32) -> vec4u {
  return vec4u(uppers << 4u, uppers << 10u, uppers, uppers << 6u) & vec4u(0x30u, 0x3000u, 0x30u, 0x3000u);
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  let word = b.nibbles[w];
  let uppers = b.uppers >> vec2u(8u * w);
  return array<vec4f, 2>(nibble_codes(word, upper_bits(uppers.x)), nibble_codes(word >> 4u, upper_bits(uppers.y)));
}
