// Products of blocks of W with blocks of x in fixed point: an integer dot product takes four codes at once. A value of x is
// two int8 limbs (int8_limbs.wgsl).
// Needs packed_codes(block) of a format: word w of the first vec4u has the codes of values 4w..4w+3, of the second those
// of 16+4w.., each as a signed byte that is UNIT * (code - MIDDLE); TWO_SCALES says whether the two differ in scale and offset.
// Codes are counted from their middle: counted from 0, most of their sum would cancel against the offset, and bits of
// the limbs would be lost.
// Needs column_limbs(m0, m, i, first, block): a block of x.
// A block of x: two vec4u each of a and b, then (s / UNIT, sum of x, sums of its first 16 values and
// of the others).
alias Column = array<vec4u, 5>;

const ZERO = 0x4b400000;  // The bits of 1.5 * 2^23: added to small integers it makes floats of them, without conversions.

fn add_dot(sum: i32, codes: vec4u, limbs: vec4u) -> i32 {
  return sum + dot4I8Packed(codes.x, limbs.x) + dot4I8Packed(codes.y, limbs.y)
       + dot4I8Packed(codes.z, limbs.z) + dot4I8Packed(codes.w, limbs.w);
}
fn joined(a: i32, b: i32) -> f32 {
  let limbs = bitcast<vec2f>(vec2i(a, b)) - vec2f(0x1.8p23);
  return fma(limbs.x, 256.0, limbs.y);
}

// The products of a block of ROWS rows of W with its columns of the first `live` of M_TILE rows of x.
fn block_dot(blocks: array<Block, ROWS>, i: u32, m0: u32, live: u32, first: u32, block: u32) -> Sums {
  var weights = blocks;
  var codes: array<array<vec4u, 2>, ROWS>;
  for (var r = 0u; r < ROWS; r++) { codes[r] = packed_codes(weights[r]); }
  var products: Sums;
  for (var m = 0u; m < M_TILE; m++) {
    if (m >= live) { continue; }
    let limbs = column_limbs(m0, m, i, first, block);
    let x_block = bitcast<vec4f>(limbs[4]);
    for (var r = 0u; r < ROWS; r++) {
      let a = add_dot(ZERO, codes[r][0], limbs[0]);
      let b = add_dot(ZERO, codes[r][0], limbs[2]);
      var product = 0.0;
      if (TWO_SCALES) {
        let last = joined(add_dot(ZERO, codes[r][1], limbs[1]), add_dot(ZERO, codes[r][1], limbs[3]));
        product = dot(weights[r].scale, vec2f(joined(a, b), last));
      } else {
        product = weights[r].scale.x * joined(add_dot(a, codes[r][1], limbs[1]), add_dot(b, codes[r][1], limbs[3]));
      }
      products[r][m] = product * x_block.x;
      if (OFFSETS && TWO_SCALES) {
        products[r][m] += dot(fma(vec2f(MIDDLE), weights[r].scale, weights[r].offset), x_block.zw);
      } else if (OFFSETS) {
        products[r][m] += fma(MIDDLE, weights[r].scale.x, weights[r].offset.x) * x_block.y;
      }
    }
  }
  return products;
}
