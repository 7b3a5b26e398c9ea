// Columns of x in workgroup memory, as in x_staged but in fixed point: an integer dot product takes four codes at once.
// A value is two int8 limbs (int8_limbs.wgsl), as in a prefill.
// Needs packed_codes(block) of a format: word w of the first vec4u has the codes of values 4w..4w+3, of the second those
// of 16+4w.., each as a signed byte that is UNIT * (code - MIDDLE); TWO_SCALES says whether the two differ in scale and offset.
// Codes are counted from their middle: counted from 0, most of their sum would cancel against the offset, and bits of
// the limbs would be lost.
// LANES may be 1, but the invocations of a WORKGROUP are even in number and `reduce` is not reduce_single.
#import norm_squares
#import cached_columns
#import int8_limbs
// A block of x: two vec4u each of a and b, then (s / UNIT, sum of x, sums of its first 16 values and
// of the others). Browsers check each index that is not a
// constant, so the tile is an array of blocks, not of their words. The odd number of vec4u puts neighbouring blocks
// into different banks.
alias Column = array<vec4u, 5>;
var<workgroup> tile: array<Column, M_TILE * CHUNK>;
fn stage_columns(m0: u32, first: u32, index: u32) {
  if (first > 0u) { workgroupBarrier(); }
  // Two neighbouring invocations share a block: each has 16 of its values.
  let count = min(CHUNK, K / 32u - first) * 2u;
  for (var m = 0u; m < M_TILE; m++) {
    var sum = 0.0;
    for (var start = 0u; start < 2u * CHUNK; start += WORKGROUP) {
      let i = start + index;
      let from_quad = first * 8u + min(i, count - 1u) * 4u;
      var quads: array<vec4f, 4>;
      for (var q = 0u; q < 4u; q++) {
        quads[q] = x[(m0 + m) * (K / 4u) + from_quad + q];
        if (NORM) {
          sum += select(0.0, dot(quads[q], quads[q]), i < count);
          quads[q] *= vectors[from_quad + q];
        }
      }
      let most = max(max(abs(quads[0]), abs(quads[1])), max(abs(quads[2]), abs(quads[3])));
      let total = dot(quads[0] + quads[1] + quads[2] + quads[3], vec4f(f32(OFFSETS)));
      let own = vec2f(max(max(most.x, most.y), max(most.z, most.w)), total);
      let other = vec2f(shuffle_xor(own.x, 1u, index), shuffle_xor(own.y, 1u, index));
      // The bound of 1e-30 keeps s normal. A division may be off by some ulp, an error that all values of a block would
      // share: hence the fma below.
      let inverse = LARGEST / max(max(own.x, other.x), 1e-30);
      let about = 1.0 / inverse;
      let s = fma(about, fma(-inverse, about, 1.0), about);
      var a: vec4u;
      var b: vec4u;
      for (var q = 0u; q < 4u; q++) {
        let limbs = limbs_of(quads[q], inverse);
        a[q] = limbs.x;
        b[q] = limbs.y;
      }
      if (i < count) {
        let at = m * CHUNK + i / 2u;
        if (i % 2u == 0u) {
          tile[at][0] = a;
          tile[at][2] = b;
          tile[at][4] = bitcast<vec4u>(vec4f(s / UNIT, own.y + other.y, own.y, other.y));
        } else {
          tile[at][1] = a;
          tile[at][3] = b;
        }
      }
    }
    add_squares(m, first, index, sum);
  }
  workgroupBarrier();
}

fn column_limbs(m: u32, i: u32, chunk_block: u32) -> Column {
  if (ROW_TILES > 1u) { return cached[i * M_TILE + m]; }
  return tile[m * CHUNK + chunk_block];
}

const ZERO = 0x4b400000;  // The bits of 1.5 * 2^23: added to small integers it makes floats of them, without conversions.

fn add_dot(sum: i32, codes: vec4u, limbs: vec4u) -> i32 {
  return sum + dot4I8Packed(codes.x, limbs.x) + dot4I8Packed(codes.y, limbs.y)
       + dot4I8Packed(codes.z, limbs.z) + dot4I8Packed(codes.w, limbs.w);
}
fn joined(a: i32, b: i32) -> f32 {
  let limbs = bitcast<vec2f>(vec2i(a, b)) - vec2f(0x1.8p23);
  return fma(limbs.x, 256.0, limbs.y);
}

// The products of a block of ROWS rows of W with its columns of M_TILE rows of x.
fn block_dot(blocks: array<Block, ROWS>, i: u32, m0: u32, first: u32, block: u32) -> Sums {
  var weights = blocks;
  var products: Sums;
  for (var m = 0u; m < M_TILE; m++) {
    let limbs = column_limbs(m, i, block - first);
    let x_block = bitcast<vec4f>(limbs[4]);
    for (var r = 0u; r < ROWS; r++) {
      let codes = packed_codes(weights[r]);
      let a = add_dot(ZERO, codes[0], limbs[0]);
      let b = add_dot(ZERO, codes[0], limbs[2]);
      var product = 0.0;
      if (TWO_SCALES) {
        let last = joined(add_dot(ZERO, codes[1], limbs[1]), add_dot(ZERO, codes[1], limbs[3]));
        product = dot(weights[r].scale, vec2f(joined(a, b), last));
      } else {
        product = weights[r].scale.x * joined(add_dot(a, codes[1], limbs[1]), add_dot(b, codes[1], limbs[3]));
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
