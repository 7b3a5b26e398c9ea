// y[m, :] = x[m, :] / sqrt(mean(x[m, :]^2) + EPS) * weight
// Bindings: 0 state; 1 weight: (K,); 2 x: (MAX_ROWS, K); 3 y: (MAX_ROWS, K).
// Constants: K, EPS, LANES (= WORKGROUP); LOGITS: only the last rows of x are read, those that need logits; they make rows
// 0, 1 ... of y. One workgroup a row; dispatch (count), or (rows that need logits) with LOGITS.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
#import reduce

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let from_row = (select(0u, state.count - state.logit_rows, LOGITS) + group.x) * K;
  let to_row = group.x * K;
  var sum = 0.0;
  for (var i = lane; i < K; i += LANES) { sum += x[from_row + i] * x[from_row + i]; }
  let scale = inverseSqrt(reduce_lanes(sum, lane) / f32(K) + EPS);
  for (var i = lane; i < K; i += LANES) { y[to_row + i] = x[from_row + i] * scale * weight[i]; }
}
