// Q8_0: 32 int8 are 2 elements of quants. value = d * q
#import half_scale
const OFFSETS = false;
struct Block { bytes: array<vec4u, 2>, scale: vec2f, offset: f32 }
fn load_block(block: u32) -> Block {
  return Block(array<vec4u, 2>(quants[block * 2u], quants[block * 2u + 1u]), vec2f(half_scale(block)), 0.0);
}
// As nibble_codes does it, with all 8 bits.
fn signed_bytes(word: u32) -> vec4f {
  let raised = word ^ 0x80808080u;
  let bytes = vec4u(raised, raised, raised >> 16u, raised >> 16u) & vec4u(0xffu, 0xff00u, 0xffu, 0xff00u);
  let floats = bitcast<vec4f>(bytes | vec4u(0x4b000000u, 0x47000000u, 0x4b000000u, 0x47000000u));
  return floats - vec4f(0x1p23 + 128.0, 0x1p15 + 128.0, 0x1p23 + 128.0, 0x1p15 + 128.0);
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  return array<vec4f, 2>(signed_bytes(b.bytes[0][w]), signed_bytes(b.bytes[1][w]));
}
const TWO_SCALES = false;
const UNIT = 1.0;
const MIDDLE = 0.0;
fn packed_codes(b: Block) -> array<vec4u, 2> { return b.bytes; }
