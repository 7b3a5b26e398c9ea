// The lower two bits of a block's codes: byte j of word h has in bits 2w and 2w + 1 those of value 16h + 4w + j.
// Two blocks are an element of quants.
#import nibble_codes
#import blocks
fn two_bits(row: u32, column: u32) -> vec2u {
  let pair = quants[word_of(row, column, 2u)];
  return select(pair.xy, pair.zw, place_of(row, column, 2u) == 1u);
}
