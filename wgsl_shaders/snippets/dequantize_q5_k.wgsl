// Q5_K: value = d * s * q - m * t
#import five_bits
#import super_scale
fn load_block(block: u32) -> Block {
  let st = super_scale(block);
  return Block(quants[block], scales[BLOCKS / 2u + BLOCKS / 8u + block], st.x, -st.y);
}
