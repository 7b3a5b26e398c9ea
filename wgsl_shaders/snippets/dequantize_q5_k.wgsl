// Q5_K: value = d * s * q - m * t
#import five_bits
#import super_scale
const BIAS = 0.0;
const OFFSETS = true;
fn load_block(block: u32) -> Block {
  let st = super_scale(block);
  return Block(quants[block], scales[BLOCKS / 2u + BLOCKS / 8u + block], vec2f(st.x), -st.y);
}
