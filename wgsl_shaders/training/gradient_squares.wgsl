// partial[i] = the sum of the squares of a part of the gradient, for gradient_norm.wgsl.
// Bindings: 0 gradient: QUADS vec4f; 1 partial: one for each workgroup.
// Constants: QUADS, GROUPS, WORKGROUP (= LANES). Dispatch (GROUPS).
@group(0) @binding(0) var<storage, read> gradient: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> partial: array<f32>;
#import reduce_workgroup

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  var sum = 0.0;
  for (var i = group.x * WORKGROUP + index; i < QUADS; i += GROUPS * WORKGROUP) { sum += dot(gradient[i], gradient[i]); }
  let all = reduce_lanes(sum, index);
  if (index == 0u) { partial[group.x] = all; }
}
