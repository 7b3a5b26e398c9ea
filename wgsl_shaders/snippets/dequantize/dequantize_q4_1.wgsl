// Q4_1: value = d * q + m
#import four_bits
#import halves
#import blocks
const BIAS = 0.0;
const OFFSETS = true;
fn load_block(row: u32, column: u32) -> Block {
  let block = block_of(row, column);
  let dm = halves(scales[block]);
  return Block(quants[block], vec2f(dm.x), vec2f(dm.y));
}
