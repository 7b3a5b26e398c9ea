// F32: taken as blocks of 32 values, 32 words each.
struct Block { base: u32 }
fn load_block(block: u32) -> Block { return Block(block * 32u); }
// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  let lo = b.base + 4u * w;
  let hi = lo + 16u;
  return array<vec4f, 2>(
    bitcast<vec4f>(vec4u(weights[lo], weights[lo + 1u], weights[lo + 2u], weights[lo + 3u])),
    bitcast<vec4f>(vec4u(weights[hi], weights[hi + 1u], weights[hi + 2u], weights[hi + 3u])));
}
