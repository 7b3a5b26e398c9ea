// Q5_0: value = d * (q - 16)
#import five_bits
#import half_scale
const BIAS = 16.0;
const OFFSETS = false;
fn load_block(block: u32) -> Block {
  return Block(quants[block], scales[(BLOCKS + 1u) / 2u + block], vec2f(half_scale(block)), 0.0);
}
