// Q4_1: value = d * q + m
#import four_bits
#import halves
fn load_block(block: u32) -> Block {
  let dm = halves(scales[block]);
  return Block(quants[block], dm.x, dm.y);
}
