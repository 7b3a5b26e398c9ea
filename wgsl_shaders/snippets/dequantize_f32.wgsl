// F32: blocks of 32 values are 8 elements of quants.
struct Block { base: u32 }
fn load_block(block: u32) -> Block { return Block(block * 8u); }
// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  return array<vec4f, 2>(bitcast<vec4f>(quants[b.base + w]), bitcast<vec4f>(quants[b.base + w + 4u]));
}
