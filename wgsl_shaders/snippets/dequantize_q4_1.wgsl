// Q4_1: value = d * q + m
#import four_bits
#import halves
const BIAS = 0.0;
const OFFSETS = true;
fn load_block(block: u32) -> Block {
  let dm = halves(scales[block]);
  return Block(quants[block], vec2f(dm.x), dm.y);
}
