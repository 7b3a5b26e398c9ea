// The dot products of ROWS rows of W and M_TILE rows of x, shared by LANES invocations: each takes every LANES-th block of
// 32 columns. With NORM x is normalized by RMS: its scale comes from the values that pass by anyway.
// Needs quants, scales, x (MAX_ROWS, K / 4) vec4f, norm_weight (K / 4) vec4f, weight_row(item, r);
// constants K, LANES, M_TILE, ROWS, NORM, EPS.
#import dequantize
#import reduce

alias Sums = array<array<f32, M_TILE>, ROWS>;

fn dot_rows(item: u32, m0: u32, index: u32) -> Sums {
  var sums: Sums;
  var squares: array<f32, M_TILE>;
  for (var block = index % LANES; block < K / 32u; block += LANES) {
    var blocks: array<Block, ROWS>;
    for (var r = 0u; r < ROWS; r++) { blocks[r] = load_block(weight_row(item, r) * (K / 32u) + block); }
    for (var w = 0u; w < 4u; w++) {
      var xs: array<array<vec4f, 2>, M_TILE>;
      for (var m = 0u; m < M_TILE; m++) {
        let at = (m0 + m) * (K / 4u) + block * 8u + w;
        xs[m] = array<vec4f, 2>(x[at], x[at + 4u]);
        if (NORM) {
          squares[m] += dot(xs[m][0], xs[m][0]) + dot(xs[m][1], xs[m][1]);
          xs[m][0] *= norm_weight[block * 8u + w];
          xs[m][1] *= norm_weight[block * 8u + w + 4u];
        }
      }
      for (var r = 0u; r < ROWS; r++) {
        let values = dequantize8(blocks[r], w);
        for (var m = 0u; m < M_TILE; m++) { sums[r][m] += dot(values[0], xs[m][0]) + dot(values[1], xs[m][1]); }
      }
    }
  }
  for (var m = 0u; m < M_TILE; m++) {
    var scale = 1.0;
    if (NORM) { scale = inverseSqrt(reduce_lanes(squares[m], index) / f32(K) + EPS); }
    for (var r = 0u; r < ROWS; r++) { sums[r][m] = reduce_lanes(sums[r][m], index) * scale; }
  }
  return sums;
}
