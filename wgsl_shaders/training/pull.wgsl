// gradient += shares.x * fisher * (parameters - anchor), and per workgroup the sum of fisher * (parameters - anchor)^2.
// Bindings: 0 shares; 1 fisher, 2 parameters, 3 anchor, 4 gradient: QUADS vec4f; 5 partial: one for each workgroup.
// Constants: QUADS, GROUPS, WORKGROUP (= LANES). Dispatch (GROUPS).
@group(0) @binding(0) var<storage, read> shares: vec2f;
@group(0) @binding(1) var<storage, read> fisher: array<vec4f>;
@group(0) @binding(2) var<storage, read> parameters: array<vec4f>;
@group(0) @binding(3) var<storage, read> anchor: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> gradient: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> partial: array<f32>;
#import reduce_workgroup

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  var sum = 0.0;
  for (var i = group.x * WORKGROUP + index; i < QUADS; i += GROUPS * WORKGROUP) {
    let apart = parameters[i] - anchor[i];
    let held = fisher[i] * apart;
    gradient[i] += shares.x * held;
    sum += dot(held, apart);
  }
  let all = reduce_lanes(sum, index);
  if (index == 0u) { partial[group.x] = all; }
}
