// Columns of a row of x in workgroup memory, as in x_staged but in fixed point (limbs_dot.wgsl), as in a prefill.
// LANES may be 1, but WORKGROUP must be even, and `reduce` must not be reduce_single.
#import norm_squares
#import limbs_dot
#import cached_columns
#import half_block
// Browsers check each index that is not a constant, so the tile is an array of blocks, not of their words. The odd
// number of vec4u puts neighbouring blocks into different banks.
var<workgroup> tile: array<Column, M_TILE * CHUNK>;
fn stage_columns(m0: u32, first: u32, index: u32) {
  if (first > 0u) { workgroupBarrier(); }
  arrive(first, index);
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
      let half = half_block(quads, index);
      if (i < count) {
        let at = m * CHUNK + i / 2u;
        if (i % 2u == 0u) {
          tile[at][0] = half.a;
          tile[at][2] = half.b;
          tile[at][4] = bitcast<vec4u>(vec4f(half.s / UNIT, half.own + half.other, half.own, half.other));
        } else {
          tile[at][1] = half.a;
          tile[at][3] = half.b;
        }
      }
    }
    add_squares(m, first, index, sum);
  }
  workgroupBarrier();
}

fn column_limbs(m0: u32, m: u32, i: u32, first: u32, block: u32) -> Column {
  if (ROW_TILES > 1u) { return cached[i * M_TILE + m]; }
  return tile[m * CHUNK + block - first];
}
