// y[m, n] = activation(gate[m, n]) * up[m, FIRST + n], if gate and up do not come from a single linear.
// Bindings: 0 state; 1 gate and 3 y: (MAX_ROWS, N), 2 up: (MAX_ROWS, UP_WIDTH).
// Constants: N, UP_WIDTH, FIRST, WORKGROUP; SIGMOID or GELU: the activation is this one, otherwise silu.
// Dispatch (ceil(N / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> gate: array<f32>;
@group(0) @binding(2) var<storage, read> up: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
#import activation

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= N) { return; }
  let at = id.y * N + id.x;
  let value = up[id.y * UP_WIDTH + FIRST + id.x];
  if (SIGMOID) {
    y[at] = value / (1.0 + exp(-gate[at]));
  } else {
    y[at] = activation(gate[at]) * value;
  }
}
