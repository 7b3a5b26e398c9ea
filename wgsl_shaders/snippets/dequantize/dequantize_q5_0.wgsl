// Q5_0: value = d * (q - 16)
#import five_bits
#import half_scale
const BIAS = 16.0;
const OFFSETS = false;
fn load_block(row: u32, column: u32) -> Block {
  let block = block_of(row, column);
  return Block(quants[block], scales[(BLOCKS + 1u) / 2u + block], vec2f(half_scale(row, column)), vec2f());
}
