// Q5_1: value = d * q + m
#import five_bits
#import halves
const BIAS = 0.0;
const OFFSETS = true;
fn load_block(block: u32) -> Block {
  let dm = halves(scales[block]);
  return Block(quants[block], scales[BLOCKS + block], vec2f(dm.x), dm.y);
}
