// Rows of x as 16-bit fixed-point numbers, for matmul_integer.wgsl: blocks of 32 values (int8_limbs.wgsl).
// Bindings: 0 state; 1 x: (MAX_ROWS, K / 4) vec4f; 2 limbs: (K / 32, MAX_ROWS) records of five vec4u, two each of a and b, then
//           (s, sum of x / s, sums of its first 16 values / s and of the others).
// Constants: K, MAX_ROWS, WORKGROUP. One invocation a record; dispatch (ceil(K / 32 / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> records: array<array<vec4u, 5>>;
#import int8_limbs

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  let block = id.x;
  if (m >= state.count || block >= K / 32u) { return; }
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
  records[block * MAX_ROWS + m] = array<vec4u, 5>(a[0], a[1], b[0], b[1], bitcast<vec4u>(scales));
}
