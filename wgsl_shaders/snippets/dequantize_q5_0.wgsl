// Q5_0: value = d * (q - 16)
#import five_bits
#import half_scale
fn load_block(block: u32) -> Block {
  let d = half_scale(block);
  return Block(quants[block], scales[(BLOCKS + 1u) / 2u + block], d, -16.0 * d);
}
