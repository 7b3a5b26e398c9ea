// Q6_K: value = d * s * (q - 32), with an s for values 0..15 and one for 16..31.
#import low_nibbles
#import halves
struct Block { nibbles: vec4u, uppers: vec2u, scale: vec2f }
fn load_block(block: u32) -> Block {
  let high = BLOCKS / 2u + BLOCKS / 8u + 2u * block;
  let s = bitcast<i32>(scales[block / 2u] << (16u - block % 2u * 16u));
  let d = halves(scales[BLOCKS / 2u + block / 8u]).x;
  return Block(quants[block], vec2u(scales[high], scales[high + 1u]), d * vec2f(vec2i((s << 8u) >> 24u, s >> 24u)));
}
fn six_bits(nibbles: u32, uppers: u32) -> vec4f {
  let upper = vec4u(uppers, uppers >> 2u, uppers >> 4u, uppers >> 6u) & vec4u(3u);
  return vec4f(low_nibbles(nibbles) | (upper << vec4u(4u))) - 32.0;
}
// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  let uppers = b.uppers >> vec2u(8u * w);
  return array<vec4f, 2>(b.scale.x * six_bits(b.nibbles[w], uppers.x),
                         b.scale.y * six_bits(b.nibbles[w] >> 4u, uppers.y));
}
