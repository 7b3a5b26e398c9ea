// A block of 32 values of x as integers: two vec4u each of a and b (int8_limbs.wgsl), then (s, sum of x / s, sums of
// its first 16 values / s and of the others).
// Needs x: (MAX_ROWS, K / 4) vec4f.
#import int8_limbs
alias Limbs = array<vec4u, 5>;
fn limbs_record(m: u32, block: u32) -> Limbs {
  var quads: array<vec4f, 8>;
  var most = vec4f();
  for (var q = 0u; q < 8u; q++) {
    quads[q] = x[m * (K / 4u) + block * 8u + q];
    most = max(most, abs(quads[q]));
  }
  // The bound of 1e-30 keeps s normal.
  let largest = max(max(max(most.x, most.y), max(most.z, most.w)), 1e-30);
  let inverse = LARGEST / largest;
  var a: array<vec4u, 2>;
  var b: array<vec4u, 2>;
  var sums: array<f32, 2>;
  for (var h = 0u; h < 2u; h++) {
    for (var w = 0u; w < 4u; w++) {
      let limbs = limbs_of(quads[4u * h + w], inverse);
      a[h][w] = limbs.x;
      b[h][w] = limbs.y;
      sums[h] += dot(quads[4u * h + w] * inverse, vec4f(1.0));
    }
  }
  let scales = vec4f(largest / LARGEST, sums[0] + sums[1], sums[0], sums[1]);
  return Limbs(a[0], a[1], b[0], b[1], bitcast<vec4u>(scales));
}
