// Q4_1: 32 values in 5 words: halves d and m, then 16 bytes; byte j holds value j (low nibble) and j + 16 (high).
// value = d * q + m
struct Block { base: u32, d: f32, m: f32 }
fn load_block(block: u32) -> Block {
  let base = block * 5u;
  let dm = unpack2x16float(weights[base]);
  return Block(base + 1u, dm.x, dm.y);
}
// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  let q = weights[b.base + w];
  let bytes = vec4u(q, q >> 8u, q >> 16u, q >> 24u);
  let lo = vec4f(bytes & vec4u(15u));
  let hi = vec4f((bytes >> vec4u(4u)) & vec4u(15u));
  return array<vec4f, 2>(b.d * lo + b.m, b.d * hi + b.m);
}
