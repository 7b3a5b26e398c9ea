// Q4_0: 32 values in 18 bytes: half d, then 16 bytes; byte j holds value j (low nibble) and j + 16 (high).
// value = d * (q - 8)
#import load_unaligned
struct Block { base: u32, d: f32 }
fn load_block(block: u32) -> Block { return Block(block * 18u + 2u, load_half(block * 18u)); }
// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  let q = load_u32(b.base + 4u * w);
  let bytes = vec4u(q, q >> 8u, q >> 16u, q >> 24u);
  let lo = vec4f(bytes & vec4u(15u));
  let hi = vec4f((bytes >> vec4u(4u)) & vec4u(15u));
  return array<vec4f, 2>(b.d * (lo - 8.0), b.d * (hi - 8.0));
}
