// y[m, :] = x[m, :], before x is overwritten.
// Bindings: 0 state; 1 x: (MAX_ROWS, K / 4) vec4f; 2 y: (MAX_ROWS, K / 4) vec4f.
// Constants: K (a multiple of 4), WORKGROUP. One invocation copies 4 values; dispatch (ceil(K / 4 / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4f>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= K / 4u) { return; }
  y[id.y * (K / 4u) + id.x] = x[id.y * (K / 4u) + id.x];
}
