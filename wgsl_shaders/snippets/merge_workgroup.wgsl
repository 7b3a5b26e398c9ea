// Merges the lanes' softmax sums into lane 0's, halving the number of lanes each time. Needs uniform control flow.
struct Partial { largest: f32, total: f32, values: array<vec4f, HEAD_DIM / 4u> }
var<workgroup> merge_scratch: array<Partial, WORKGROUP / 2u>;
fn merge_lanes(sum: ptr<function, Partial>, index: u32, lane: u32) {
  let slot = index / LANES * (LANES / 2u);
  for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
    if (lane >= stride && lane < 2u * stride) { merge_scratch[slot + lane - stride] = *sum; }
    workgroupBarrier();
    if (lane < stride) {
      let other = slot + lane;
      let largest = max((*sum).largest, merge_scratch[other].largest);
      let own_share = exp((*sum).largest - largest);
      let other_share = exp(merge_scratch[other].largest - largest);
      (*sum).largest = largest;
      (*sum).total = (*sum).total * own_share + merge_scratch[other].total * other_share;
      for (var i = 0u; i < HEAD_DIM / 4u; i++) {
        (*sum).values[i] = (*sum).values[i] * own_share + merge_scratch[other].values[i] * other_share;
      }
    }
    workgroupBarrier();
  }
}
