// The sum over each run of LANES invocations (a power of two), given to all of them. Needs uniform control flow.
var<workgroup> reduce_scratch: array<vec4f, WORKGROUP>;
fn reduce_lanes4(value: vec4f, index: u32) -> vec4f {
  let lane = index % LANES;
  reduce_scratch[index] = value;
  for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
    workgroupBarrier();
    if (lane < stride) { reduce_scratch[index] += reduce_scratch[index + stride]; }
  }
  workgroupBarrier();
  let sum = reduce_scratch[index - lane];
  workgroupBarrier();
  return sum;
}
fn reduce_lanes(value: f32, index: u32) -> f32 { return reduce_lanes4(vec4f(value), index).x; }
// The value of the invocation whose number differs in the bit `mask`.
fn shuffle_xor(value: f32, mask: u32, index: u32) -> f32 {
  reduce_scratch[index].x = value;
  workgroupBarrier();
  let other = reduce_scratch[index ^ mask].x;
  workgroupBarrier();
  return other;
}
