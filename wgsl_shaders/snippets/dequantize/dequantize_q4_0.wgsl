// Q4_0: value = d * (q - 8)
#import four_bits
#import half_scale
const BIAS = 8.0;
const OFFSETS = false;
fn load_block(row: u32, column: u32) -> Block {
  return Block(quants[block_of(row, column)], vec2f(half_scale(row, column)), vec2f());
}
