// Q4_K: value = d * s * q - m * t
#import four_bits
#import super_scale
const BIAS = 0.0;
const OFFSETS = true;
fn load_block(row: u32, column: u32) -> Block {
  let st = super_scale(row, column);
  return Block(quants[block_of(row, column)], vec2f(st.x), vec2f(-st.y));
}
