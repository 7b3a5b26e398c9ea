// MXFP4: value = d * v[q], with d a power of two, of which scales have the upper half.
#import table_codes
#import blocks
const TABLE = vec4u(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
fn load_block(row: u32, column: u32) -> Block {
  let d = scales[word_of(row, column, 2u)] << (16u - place_of(row, column, 2u) * 16u);
  return Block(quants[block_of(row, column)], vec2f(bitcast<f32>(d & 0xffff0000u)), vec2f());
}
