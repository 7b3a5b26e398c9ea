// y[m, h] = x[m, 2 h], or x[m, 2 h + 1] if SECOND, for heads of SIZE values.
// Bindings: 0 state; 1 x: (MAX_ROWS, 2 * N); 2 y: (MAX_ROWS, N).
// Constants: N, SIZE, SECOND, WORKGROUP. Dispatch (ceil(N / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= N) { return; }
  let head = 2u * (id.x / SIZE) + select(0u, 1u, SECOND);
  y[id.y * N + id.x] = x[id.y * 2u * N + head * SIZE + id.x % SIZE];
}
