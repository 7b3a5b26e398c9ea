// Q4_K, Q5_K: (d * s, m * t) of a block.
#import halves
#import blocks
fn super_scale(row: u32, column: u32) -> vec2f {
  let st = scales[word_of(row, column, 2u)] >> (place_of(row, column, 2u) * 16u);
  return halves(scales[BLOCKS / 2u + word_of(row, column, 8u)]) * vec2f(vec2u(st & 0xffu, (st >> 8u) & 0xffu));
}
