// dgate[m, n] = dy[m, n] * up[m, n] * activation'(gate[m, n]), dup[m, n] = dy[m, n] * activation(gate[m, n])
// Bindings: 0 state; 1 dy, 2 gate, 3 up, 4 dgate and 5 dup: (MAX_ROWS, N).
// Constants: N, WORKGROUP; GELU: the activation is gelu, otherwise silu. Dispatch (ceil(N / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read> gate: array<f32>;
@group(0) @binding(3) var<storage, read> up: array<f32>;
@group(0) @binding(4) var<storage, read_write> dgate: array<f32>;
@group(0) @binding(5) var<storage, read_write> dup: array<f32>;
#import activation

fn activation_slope(x: f32) -> f32 {
  if (GELU) {
    let t = tanh_of(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 0.134145 * x * x);
  }
  let share = 1.0 / (1.0 + exp(-x));
  return share * (1.0 + x * (1.0 - share));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= N) { return; }
  let at = id.y * N + id.x;
  let own = dy[at];
  let x = gate[at];
  dgate[at] = own * up[at] * activation_slope(x);
  dup[at] = own * activation(x);
}
