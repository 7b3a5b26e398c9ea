// Decides on a step by the gradient's norm: not applied if it is not finite, scaled if it exceeds the rule's `clip`.
// Bindings: 0 rule; 1 partial: GROUPS sums of squares; 2 found: the Step.
// Constants: GROUPS, WORKGROUP (= LANES). Dispatch (1).
#import step
@group(0) @binding(0) var<storage, read> rule: Rule;
@group(0) @binding(1) var<storage, read> partial: array<f32>;
@group(0) @binding(2) var<storage, read_write> found: Step;
#import reduce_workgroup

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) index: u32) {
  var sum = 0.0;
  for (var i = index; i < GROUPS; i += WORKGROUP) { sum += partial[i]; }
  let norm = sqrt(reduce_lanes(sum, index));
  if (index != 0u) { return; }
  // Tests the bits: a compiler may assume that numbers are finite.
  let finite = (bitcast<u32>(norm) & 0x7f800000u) != 0x7f800000u;
  var factor = 1.0;
  if (rule.clip > 0.0 && norm > rule.clip) { factor = rule.clip / norm; }
  found = Step(norm, factor, u32(finite), 0u);
}
