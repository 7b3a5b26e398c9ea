// All columns of several rows of x in workgroup memory, in fixed point (limbs_dot.wgsl). The invocations take blocks of
// any row, and for NORM's scales each lane group takes a row: with one row at a time most would be idle.
#import limbs_dot
#import half_block
const HALVES = K / 16u;  // half blocks of a row
const ALL = M_TILE * HALVES;
const STAGED = (ALL + WORKGROUP - 1u) / WORKGROUP;  // of an invocation
const AHEAD = min(STAGED, 4u);  // that it requests before it works on the first
var<workgroup> tile: array<Column, M_TILE * (K / 32u)>;
var<workgroup> squares: array<f32, select(1u, M_TILE * (K / 32u), NORM)>;
var<workgroup> row_scales: array<f32, M_TILE>;

fn stage_columns(m0: u32, first: u32, index: u32) {
  for (var start = 0u; start < ALL; start += WORKGROUP * AHEAD) {
    var quads: array<array<vec4f, 4>, AHEAD>;
    for (var j = 0u; j < AHEAD; j++) {
      let i = min(start + j * WORKGROUP + index, ALL - 1u);
      let from_quad = min(m0 + i / HALVES, MAX_ROWS - 1u) * (K / 4u) + i % HALVES * 4u;
      for (var q = 0u; q < 4u; q++) { quads[j][q] = x[from_quad + q]; }
    }
    for (var j = 0u; j < AHEAD; j++) {
      let i = start + j * WORKGROUP + index;
      var sum = 0.0;
      if (NORM) {
        for (var q = 0u; q < 4u; q++) {
          sum += dot(quads[j][q], quads[j][q]);
          quads[j][q] *= vectors[i % HALVES * 4u + q];
        }
        sum += shuffle_xor(sum, 1u, index);
      }
      let half = half_block(quads[j], index);
      if (i < ALL) {
        let at = i / 2u;
        if (i % 2u == 0u) {
          tile[at][0] = half.a;
          tile[at][2] = half.b;
          tile[at][4] = bitcast<vec4u>(vec4f(half.s / UNIT, half.own + half.other, half.own, half.other));
          if (NORM) { squares[at] = sum; }
        } else {
          tile[at][1] = half.a;
          tile[at][3] = half.b;
        }
      }
    }
  }
  workgroupBarrier();
  if (NORM) {
    for (var before = 0u; before < M_TILE; before += WORKGROUP / LANES) {
      let m = before + index / LANES;
      var sum = 0.0;
      for (var b = index % LANES; b < K / 32u; b += LANES) { sum += squares[min(m, M_TILE - 1u) * (K / 32u) + b]; }
      let all = reduce_lanes(sum, index);
      if (m < M_TILE && index % LANES == 0u) { row_scales[m] = inverseSqrt(all / f32(K) + EPS); }
    }
    workgroupBarrier();
  }
}
fn cache_columns(lane: u32) {}
fn column_limbs(m0: u32, m: u32, i: u32, first: u32, block: u32) -> Column { return tile[m * (K / 32u) + block]; }
fn norm_scale(m: u32, index: u32) -> f32 {
  if (NORM) { return row_scales[m]; }
  return 1.0;
}
