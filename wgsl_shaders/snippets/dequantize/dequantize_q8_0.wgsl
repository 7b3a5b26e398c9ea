// Q8_0: 32 int8 are 2 elements of quants. value = d * q
#import half_scale
#import signed_bytes
const OFFSETS = false;
struct Block { low: vec4u, high: vec4u, scale: vec2f, offset: vec2f }
fn load_block(row: u32, column: u32) -> Block {
  let block = block_of(row, column);
  return Block(quants[block * 2u], quants[block * 2u + 1u], vec2f(half_scale(row, column)), vec2f());
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  return array<vec4f, 2>(signed_bytes(b.low[w]), signed_bytes(b.high[w]));
}
const TWO_SCALES = false;
const UNIT = 1.0;
const MIDDLE = 0.0;
fn packed_codes(b: Block) -> array<vec4u, 2> { return array<vec4u, 2>(b.low, b.high); }
