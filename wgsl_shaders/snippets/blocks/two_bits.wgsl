// The lower two bits of a block's codes: byte j of word h has in bits 2w and 2w + 1 those of value 16h + 4w + j.
// Two blocks are an element of quants.
#import nibble_codes
#import blocks
fn two_bits(row: u32, column: u32) -> vec2u {
  let pair = quants[word_of(row, column, 2u)];
  return select(pair.xy, pair.zw, place_of(row, column, 2u) == 1u);
}
// codes8 of a format that has no other bits.
fn two_bit_codes(codes: vec2u, w: u32) -> array<vec4f, 2> {
  let four = (codes >> vec2u(2u * w)) & vec2u(0x03030303u);
  return array<vec4f, 2>(nibble_codes(four.x, vec4u()), nibble_codes(four.y, vec4u()));
}
