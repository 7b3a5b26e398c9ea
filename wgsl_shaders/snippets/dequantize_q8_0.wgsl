// Q8_0: 32 int8 are 2 elements of quants. value = d * q
#import half_scale
const OFFSETS = false;
struct Block { low: vec4u, high: vec4u, scale: vec2f, offset: f32 }
fn load_block(row: u32, column: u32) -> Block {
  let block = block_of(row, column);
  return Block(quants[block * 2u], quants[block * 2u + 1u], vec2f(half_scale(row, column)), 0.0);
}
// Does the same as nibble_codes, with all 8 bits.
fn signed_bytes(word: u32) -> vec4f {
  let raised = word ^ 0x80808080u;
  let bytes = vec4u(raised, raised, raised >> 16u, raised >> 16u) & vec4u(0xffu, 0xff00u, 0xffu, 0xff00u);
  let floats = bitcast<vec4f>(bytes | vec4u(0x4b000000u, 0x47000000u, 0x4b000000u, 0x47000000u));
  return floats - vec4f(0x1p23 + 128.0, 0x1p15 + 128.0, 0x1p23 + 128.0, 0x1p15 + 128.0);
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  return array<vec4f, 2>(signed_bytes(b.low[w]), signed_bytes(b.high[w]));
}
const TWO_SCALES = false;
const UNIT = 1.0;
const MIDDLE = 0.0;
fn packed_codes(b: Block) -> array<vec4u, 2> { return array<vec4u, 2>(b.low, b.high); }
