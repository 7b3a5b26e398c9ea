// y[m, n] = silu(gate[m, n]) * up[m, n], for gates and ups whose weights have different formats.
// Bindings: 0 state; 1 pair: (MAX_ROWS, 2 N), gates then ups; 2 y: (MAX_ROWS, N).
// Constants: N, WORKGROUP. Dispatch (ceil(N / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> pair: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= N) { return; }
  let gate = pair[id.y * 2u * N + id.x];
  y[id.y * N + id.x] = gate / (1.0 + exp(-gate)) * pair[id.y * 2u * N + N + id.x];
}
