// y[m, :] = CAP * tanh(x[m, :] / CAP), if the linear that computes x does not cap it.
// Bindings: 0 state; 1 x and 2 y: (MAX_ROWS, N).
// Constants: N, CAP, WORKGROUP. Dispatch (ceil(N / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
#import tanh

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= N) { return; }
  y[id.y * N + id.x] = CAP * tanh_of(x[id.y * N + id.x] / CAP);
}
