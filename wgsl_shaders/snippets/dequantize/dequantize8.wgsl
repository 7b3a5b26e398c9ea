// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
#import dequantize
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  let codes = codes8(b, w);
  return array<vec4f, 2>(b.scale.x * codes[0] + b.offset.x, b.scale.y * codes[1] + b.offset.y);
}
