// d of a block, for formats whose S has one half for each block.
#import halves
#import blocks
fn half_scale(row: u32, column: u32) -> f32 {
  return halves(scales[word_of(row, column, 2u)] >> (place_of(row, column, 2u) * 16u)).x;
}
