// Q4_0: value = d * (q - 8)
#import four_bits
#import half_scale
fn load_block(block: u32) -> Block {
  let d = half_scale(block);
  return Block(quants[block], d, -8.0 * d);
}
