// Q4_K: value = d * s * q - m * t
#import four_bits
#import super_scale
fn load_block(block: u32) -> Block {
  let st = super_scale(block);
  return Block(quants[block], st.x, -st.y);
}
