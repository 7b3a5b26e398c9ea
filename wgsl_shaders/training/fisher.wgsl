// fisher = keep * fisher + weight * gradient^2, or just keep * fisher if weight is 0. The gradient is 0 afterwards.
// Bindings: 0 shares: keep and weight; 1 fisher and 2 gradient: QUADS vec4f.
// Constants: QUADS, WORKGROUP. Dispatch (g, h) with g * h * WORKGROUP >= QUADS.
#import step
@group(0) @binding(0) var<storage, read> shares: vec2f;
@group(0) @binding(1) var<storage, read_write> fisher: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> gradient: array<vec4f>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  let i = place(id, groups);
  if (i >= QUADS) { return; }
  var sum = shares.x * fisher[i];
  if (shares.y != 0.0) { sum += shares.y * gradient[i] * gradient[i]; }
  fisher[i] = sum;
  gradient[i] = vec4f();
}
