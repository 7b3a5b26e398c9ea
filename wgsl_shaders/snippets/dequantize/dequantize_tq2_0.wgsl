// TQ2_0: value = d * (q - 1)
#import two_bits
#import halves
const BIAS = 1.0;
const OFFSETS = false;
const TWO_SCALES = false;
struct Block { codes: vec2u, scale: vec2f, offset: vec2f }
fn load_block(row: u32, column: u32) -> Block {
  return Block(two_bits(row, column), vec2f(halves(scales[word_of(row, column, 8u)]).x), vec2f());
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> { return two_bit_codes(b.codes, w); }
const UNIT = 32.0;
const MIDDLE = 0.0;
// 32 * (q - 1) in each byte: bit 7, which is flipped afterwards, keeps the subtraction within the byte.
fn less_one(codes: vec4u) -> vec4u {
  return (((codes & vec4u(0x60606060u)) | vec4u(0x80808080u)) - vec4u(0x20202020u)) ^ vec4u(0x80808080u);
}
fn packed_codes(b: Block) -> array<vec4u, 2> {
  return array<vec4u, 2>(
    less_one(vec4u(b.codes.x << 5u, b.codes.x << 3u, b.codes.x << 1u, b.codes.x >> 1u)),
    less_one(vec4u(b.codes.y << 5u, b.codes.y << 3u, b.codes.y << 1u, b.codes.y >> 1u)));
}
