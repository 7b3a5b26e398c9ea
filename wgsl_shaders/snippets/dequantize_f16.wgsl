// F16: taken as blocks of 32 values, 16 words each.
struct Block { base: u32 }
fn load_block(block: u32) -> Block { return Block(block * 16u); }
// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  let lo = b.base + 2u * w;
  let hi = lo + 8u;
  return array<vec4f, 2>(
    vec4f(unpack2x16float(weights[lo]), unpack2x16float(weights[lo + 1u])),
    vec4f(unpack2x16float(weights[hi]), unpack2x16float(weights[hi + 1u])));
}
