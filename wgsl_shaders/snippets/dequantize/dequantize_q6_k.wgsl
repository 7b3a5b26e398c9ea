// Q6_K: value = d * s * (q - 32), with an s for values 0..15 and one for 16..31.
#import nibble_codes
#import halves
#import blocks
const BIAS = 32.0;
const OFFSETS = false;
const TWO_SCALES = true;
struct Block { nibbles: vec4u, uppers: vec2u, scale: vec2f, offset: vec2f }
fn load_block(row: u32, column: u32) -> Block {
  let block = block_of(row, column);
  let high = BLOCKS / 2u + BLOCKS / 8u + 2u * block;
  let s = bitcast<i32>(scales[word_of(row, column, 2u)] << (16u - place_of(row, column, 2u) * 16u));
  let d = halves(scales[BLOCKS / 2u + word_of(row, column, 8u)]).x;
  return Block(
    quants[block], vec2u(scales[high], scales[high + 1u]), d * vec2f(vec2i((s << 8u) >> 24u, s >> 24u)), vec2f());
}
fn upper_bits(uppers: u32) -> vec4u {
  return vec4u(uppers << 4u, uppers << 4u, uppers >> 12u, uppers >> 12u) & vec4u(0x30u, 0x3000u, 0x30u, 0x3000u);
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  let word = b.nibbles[w];
  let uppers = b.uppers >> vec2u(2u * w);
  return array<vec4f, 2>(nibble_codes(word, upper_bits(uppers.x)), nibble_codes(word >> 4u, upper_bits(uppers.y)));
}
const UNIT = 4.0;
const MIDDLE = 32.0 - BIAS;
fn packed_codes(b: Block) -> array<vec4u, 2> {
  const NIBBLES = vec4u(0x3c3c3c3cu);
  const UPPERS = vec4u(0xc0c0c0c0u);
  const SIGNS = vec4u(0x80808080u);
  const UP = vec4u(6u, 4u, 2u, 0u);
  return array<vec4u, 2>(
    (((b.nibbles << vec4u(2u)) & NIBBLES) | ((vec4u(b.uppers.x) << UP) & UPPERS)) ^ SIGNS,
    (((b.nibbles >> vec4u(2u)) & NIBBLES) | ((vec4u(b.uppers.y) << UP) & UPPERS)) ^ SIGNS);
}
