// IQ4_NL: value = d * v[q]
#import iq4_codes
#import half_scale
fn load_block(row: u32, column: u32) -> Block {
  return Block(quants[block_of(row, column)], vec2f(half_scale(row, column)), vec2f());
}
