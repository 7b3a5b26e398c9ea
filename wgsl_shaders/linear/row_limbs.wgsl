// Converts rows of x to 16-bit fixed-point numbers, for x_limbs_read.wgsl. With NORM, x is normalized by RMS first.
// Bindings: 0 state; 1 x: (MAX_ROWS, K / 4) vec4f; 2 weight: the norm's, (K / 4) vec4f, any buffer without NORM; 3
//           limbs: (MAX_ROWS, 5, K / 32) vec4u: of each block two of limbs a, two of b (int8_limbs.wgsl), and (s, sum
//           of x, sums of its first 16 values and of the others).
// Constants: K, MAX_ROWS, NORM, EPS, LANES, WORKGROUP (a multiple of LANES); LOGITS: only the last rows of x, those
// that need logits, which make rows 0, 1 ... Two invocations a block; dispatch (ceil(K / 16 / WORKGROUP), rows).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read> weight: array<vec4f>;
@group(0) @binding(3) var<storage, read_write> limbs: array<vec4u>;
#import reduce
const OFFSETS = true;
#import half_block

var<workgroup> sums: array<f32, WORKGROUP / LANES>;

fn norm_scale(from_row: u32, index: u32) -> f32 {
  var sum = 0.0;
  for (var i = index; i < K / 4u; i += WORKGROUP) { sum += dot(x[from_row + i], x[from_row + i]); }
  let of_lanes = reduce_lanes(sum, index);
  if (index % LANES == 0u) { sums[index / LANES] = of_lanes; }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < WORKGROUP / LANES; i++) { total += sums[i]; }
  return inverseSqrt(total / f32(K) + EPS);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let count = select(state.count, state.logit_rows, LOGITS);
  let m = group.y;
  if (m >= count) { return; }
  let from_row = (select(0u, state.count - count, LOGITS) + m) * (K / 4u);
  let i = group.x * WORKGROUP + index;
  let from_quad = min(i, K / 16u - 1u) * 4u;
  var quads: array<vec4f, 4>;
  for (var q = 0u; q < 4u; q++) { quads[q] = x[from_row + from_quad + q]; }
  if (NORM) {
    for (var q = 0u; q < 4u; q++) { quads[q] *= weight[from_quad + q]; }
    let scale = norm_scale(from_row, index);
    for (var q = 0u; q < 4u; q++) { quads[q] *= scale; }
  }
  let half = half_block(quads, index);
  if (i >= K / 16u) { return; }
  let at = m * 5u * (K / 32u) + i / 2u;
  limbs[at + i % 2u * (K / 32u)] = half.a;
  limbs[at + (2u + i % 2u) * (K / 32u)] = half.b;
  if (i % 2u == 0u) {
    limbs[at + 4u * (K / 32u)] = bitcast<vec4u>(vec4f(half.s, half.own + half.other, half.own, half.other));
  }
}
