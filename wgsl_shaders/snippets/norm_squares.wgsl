// For NORM: a workgroup sums the squares of x while it copies columns.
var<workgroup> squares: array<f32, M_TILE * WORKGROUP * u32(NORM) + 1u>;

// Adds to this invocation's sum for row m; the first chunk starts it.
fn add_squares(m: u32, first: u32, index: u32, sum: f32) {
  if (NORM) { squares[m * WORKGROUP + index] = select(0.0, squares[m * WORKGROUP + index], first > 0u) + sum; }
}

fn norm_scale(m: u32, index: u32) -> f32 {
  if (!NORM) { return 1.0; }
  var sum = 0.0;
  for (var i = index % LANES; i < WORKGROUP; i += LANES) { sum += squares[m * WORKGROUP + i]; }
  return inverseSqrt(reduce_lanes(sum, index) / f32(K) + EPS);
}
