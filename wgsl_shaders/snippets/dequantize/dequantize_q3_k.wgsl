// Q3_K: value = d * s * (q - 4), with an s for values 0..15 and one for 16..31. Bit w of byte j of `thirds` is the
// third bit of value 4w + j.
#import two_bits
#import halves
const BIAS = 4.0;
const OFFSETS = false;
const TWO_SCALES = true;
struct Block { codes: vec2u, thirds: u32, scale: vec2f, offset: vec2f }
fn load_block(row: u32, column: u32) -> Block {
  let s = bitcast<i32>(scales[word_of(row, column, 2u)] << (16u - place_of(row, column, 2u) * 16u));
  let d = halves(scales[BLOCKS / 2u + word_of(row, column, 8u)]).x;
  let third = scales[BLOCKS / 2u + BLOCKS / 8u + block_of(row, column)];
  return Block(two_bits(row, column), third, d * vec2f(vec2i((s << 8u) >> 24u, s >> 24u)), vec2f());
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  const ONES = vec2u(0x01010101u);
  let thirds = (vec2u(b.thirds, b.thirds >> 4u) >> vec2u(w)) & ONES;
  let codes = ((b.codes >> vec2u(2u * w)) & vec2u(0x03030303u)) | (thirds << vec2u(2u));
  return array<vec4f, 2>(nibble_codes(codes.x, vec4u()), nibble_codes(codes.y, vec4u()));
}
const UNIT = 32.0;
const MIDDLE = 4.0 - BIAS;
fn packed_codes(b: Block) -> array<vec4u, 2> {
  const CODES = vec4u(0x60606060u);
  const SIGNS = vec4u(0x80808080u);
  let low = vec4u(b.codes.x << 5u, b.codes.x << 3u, b.codes.x << 1u, b.codes.x >> 1u);
  let high = vec4u(b.codes.y << 5u, b.codes.y << 3u, b.codes.y << 1u, b.codes.y >> 1u);
  let thirds = vec4u(b.thirds);
  return array<vec4u, 2>(
    ((low & CODES) | ((thirds << vec4u(7u, 6u, 5u, 4u)) & SIGNS)) ^ SIGNS,
    ((high & CODES) | ((thirds << vec4u(3u, 2u, 1u, 0u)) & SIGNS)) ^ SIGNS);
}
