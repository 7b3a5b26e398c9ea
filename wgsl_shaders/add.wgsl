// y[m, :] = a[m, :] + b[m, :], for sums that are not part of a linear's epilogue.
// Bindings: 0 state; 1 a, 2 b and 3 y: (MAX_ROWS, N).
// Constants: N, WORKGROUP. Dispatch (ceil(N / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= N) { return; }
  y[id.y * N + id.x] = a[id.y * N + id.x] + b[id.y * N + id.x];
}
