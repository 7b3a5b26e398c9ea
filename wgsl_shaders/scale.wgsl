// y[m, :] = weight[0] * x[m, :].
// Bindings: 0 state; 1 x and 3 y: (MAX_ROWS, N); 2 weight: (1,).
// Constants: N, WORKGROUP. Dispatch (ceil(N / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= N) { return; }
  y[id.y * N + id.x] = weight[0] * x[id.y * N + id.x];
}
