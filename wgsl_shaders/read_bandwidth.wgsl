// Measures the memory's read bandwidth: reads every word of a buffer once and keeps nothing.
// Bindings: 0 data: vec4u; 1 out: (1,).
// Constants: LOADS per invocation, WORKGROUP. Dispatch (g) with g * WORKGROUP * LOADS vec4u in data.
@group(0) @binding(0) var<storage, read> data: array<vec4u>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  var mix = vec4u(0u);
  for (var i = 0u; i < LOADS; i++) { mix ^= data[i * groups.x * WORKGROUP + id.x]; }
  // Never true, since the data are zeros, but the compiler cannot know that.
  if (any(mix != vec4u(0u))) { out[0] = mix.x; }
}
