// y[m, h, :] = x[m, h, :] / sqrt(mean(x[m, h, :]^2) + EPS) * weight, for each of a row's HEADS parts (1: the whole
// row). With ADD, it is added to y (the residual).
// Bindings: 0 state; 1 weight: (K,), or any buffer if not WEIGHTED: then nothing is multiplied; 2 x and 3 y: (MAX_ROWS, HEADS, K).
// Constants: K, HEADS, EPS, ADD, WEIGHTED, LANES (= WORKGROUP); LOGITS: only the last rows of x are read, those that need logits;
// they make rows 0, 1 ... of y. One workgroup per part; dispatch (count, HEADS), or (rows that need logits, HEADS) with
// LOGITS.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
#import reduce

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let from_row = ((select(0u, state.count - state.logit_rows, LOGITS) + group.x) * HEADS + group.y) * K;
  let to_row = (group.x * HEADS + group.y) * K;
  var sum = 0.0;
  for (var i = lane; i < K; i += LANES) { sum += x[from_row + i] * x[from_row + i]; }
  let scale = inverseSqrt(reduce_lanes(sum, lane) / f32(K) + EPS);
  for (var i = lane; i < K; i += LANES) {
    var value = x[from_row + i] * scale;
    if (WEIGHTED) { value *= weight[i]; }
    if (ADD) { value += y[to_row + i]; }
    y[to_row + i] = value;
  }
}
