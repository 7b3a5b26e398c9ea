// Q5_K: value = d * s * q - m * t
#import five_bits
#import super_scale
const BIAS = 0.0;
const OFFSETS = true;
fn load_block(row: u32, column: u32) -> Block {
  let block = block_of(row, column);
  let st = super_scale(row, column);
  return Block(quants[block], scales[BLOCKS / 2u + BLOCKS / 8u + block], vec2f(st.x), vec2f(-st.y));
}
