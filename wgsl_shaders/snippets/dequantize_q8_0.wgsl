// Q8_0: 32 int8 are 2 elements of quants. value = d * q
#import half_scale
struct Block { base: u32, d: f32 }
fn load_block(block: u32) -> Block { return Block(block * 2u, half_scale(block)); }
fn signed_bytes(q: u32) -> vec4f {
  return vec4f(bitcast<vec4i>(vec4u(q << 24u, q << 16u, q << 8u, q)) >> vec4u(24u));
}
// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  return array<vec4f, 2>(b.d * signed_bytes(quants[b.base][w]), b.d * signed_bytes(quants[b.base + 1u][w]));
}
