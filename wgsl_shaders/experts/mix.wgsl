// y[m, n] = sum over s of share[m, s] * x[m, s, n], with the shares that route.wgsl made.
// Bindings: 0 state; 1 x: (MAX_ROWS, USED, N); 2 route: (MAX_ROWS, 2 * USED); 3 y: (MAX_ROWS, N).
// Constants: N, USED, WORKGROUP. Dispatch (ceil(N / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> route: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= N) { return; }
  var sum = 0.0;
  for (var s = 0u; s < USED; s++) {
    sum += route[(id.y * 2u + 1u) * USED + s] * x[(id.y * USED + s) * N + id.x];
  }
  y[id.y * N + id.x] = sum;
}
