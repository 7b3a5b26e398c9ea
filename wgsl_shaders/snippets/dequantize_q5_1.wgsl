// Q5_1: value = d * q + m
#import five_bits
#import halves
fn load_block(block: u32) -> Block {
  let dm = halves(scales[block]);
  return Block(quants[block], scales[BLOCKS + block], dm.x, dm.y);
}
