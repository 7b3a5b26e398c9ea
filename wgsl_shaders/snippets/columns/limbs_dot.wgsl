// Products of blocks of W with blocks of x in fixed point: an integer dot product takes four codes at once. A value of
// x is two int8 limbs (int8_limbs.wgsl).
// Needs packed_codes(block) of a format: word w of the first vec4u has the codes of values 4w..4w+3, of the second
// those of 16+4w.., each as a signed byte UNIT * (code - MIDDLE); TWO_SCALES says whether the two differ in scale and
// offset. Codes are counted from their middle: counted from 0, most of their sum would cancel against the offset, and
// bits of the limbs would be lost.
// Needs column_limbs(m0, m, i, first, block): a block of x.
// A block of x: two vec4u each of a and b, then (s / UNIT, sum of x, sums of its first 16 values and
// of the others).
alias Column = array<vec4u, 5>;

const ZERO = 0x4b400000;  // The bits of 1.5 * 2^23: added to small integers, it turns them into floats.

fn add_dot(sum: i32, codes: vec4u, limbs: vec4u) -> i32 {
  return sum + dot4I8Packed(codes.x, limbs.x) + dot4I8Packed(codes.y, limbs.y)
       + dot4I8Packed(codes.z, limbs.z) + dot4I8Packed(codes.w, limbs.w);
}
fn joined(a: i32, b: i32) -> f32 {
  let limbs = bitcast<vec2f>(vec2i(a, b)) - vec2f(0x1.8p23);
  return fma(limbs.x, 256.0, limbs.y);
}

// Adds the products of a block of ROWS rows of W with its columns of M_TILE rows of x. Sums of rows that do not exist
// are never read: skipping them would keep the loop from being unrolled.
fn add_block(blocks: array<Block, ROWS>, i: u32, m0: u32, first: u32, block: u32, sums: ptr<function, Sums>) {
  var weights = blocks;
  var codes: array<array<vec4u, 2>, ROWS>;
  for (var r = 0u; r < ROWS; r++) { codes[r] = packed_codes(weights[r]); }
  for (var m = 0u; m < M_TILE; m++) {
    let limbs = column_limbs(m0, m, i, first, block);
    let x_block = bitcast<vec4f>(limbs[4]);
    for (var r = 0u; r < ROWS; r++) {
      let a = add_dot(ZERO, codes[r][0], limbs[0]);
      let b = add_dot(ZERO, codes[r][0], limbs[2]);
      var sum = (*sums)[r * M_TILE + m];
      if (TWO_SCALES) {
        let last = joined(add_dot(ZERO, codes[r][1], limbs[1]), add_dot(ZERO, codes[r][1], limbs[3]));
        sum = fma(dot(weights[r].scale, vec2f(joined(a, b), last)), x_block.x, sum);
      } else {
        let product = joined(add_dot(a, codes[r][1], limbs[1]), add_dot(b, codes[r][1], limbs[3]));
        sum = fma(weights[r].scale.x * x_block.x, product, sum);
      }
      if (OFFSETS && TWO_SCALES) {
        sum += dot(fma(vec2f(MIDDLE), weights[r].scale, weights[r].offset), x_block.zw);
      } else if (OFFSETS) {
        sum = fma(fma(MIDDLE, weights[r].scale.x, weights[r].offset.x), x_block.y, sum);
      }
      (*sums)[r * M_TILE + m] = sum;
    }
  }
}
