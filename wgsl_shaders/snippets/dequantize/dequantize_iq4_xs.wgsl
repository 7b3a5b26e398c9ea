// IQ4_XS: value = d * s * v[q], with s of 16 bits, signed.
#import iq4_codes
#import halves
#import blocks
fn load_block(row: u32, column: u32) -> Block {
  let s = bitcast<i32>(scales[word_of(row, column, 2u)] << (16u - place_of(row, column, 2u) * 16u)) >> 16u;
  let d = halves(scales[BLOCKS / 2u + word_of(row, column, 8u)]).x;
  return Block(quants[block_of(row, column)], vec2f(d * f32(s)), vec2f());
}
