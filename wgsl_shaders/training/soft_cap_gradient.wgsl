// out[m, :] = dy[m, :] * (1 - (y[m, :] / CAP)^2), the gradient of the x of y = CAP * tanh(x / CAP). With ADD, it is
// added to
// `out`.
// Bindings: 0 state; 1 dy, 2 y and 3 out: (MAX_ROWS, N).
// Constants: N, CAP, ADD, WORKGROUP. Dispatch (ceil(N / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= N) { return; }
  let at = id.y * N + id.x;
  let part = y[at] / CAP;
  let value = dy[at] * (1.0 - part * part);
  if (ADD) { out[at] += value; } else { out[at] = value; }
}
