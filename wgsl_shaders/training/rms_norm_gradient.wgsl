// The gradient of rms_norm.wgsl's x, with r = 1 / sqrt(mean(x^2) + EPS) and g = dy * weight: r g - r^3 x mean(g x), for
// each of a row's HEADS parts. With ADD, it is added to `out`.
// Bindings: 0 state; 1 weight: (K,); 2 dy, 3 x and 4 out: (MAX_ROWS, HEADS, K).
// Constants: K, HEADS, EPS, ADD, LANES (= WORKGROUP). One workgroup per part; dispatch (count, HEADS).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
#import reduce_workgroup

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  if (group.x >= state.count) { return; }
  let row = (group.x * HEADS + group.y) * K;
  var both = vec4f();
  for (var i = lane; i < K; i += LANES) {
    let value = x[row + i];
    both += vec4f(value * value, dy[row + i] * weight[i] * value, 0.0, 0.0);
  }
  let sums = reduce_lanes4(both, lane) / f32(K);
  let scale = inverseSqrt(sums.x + EPS);
  let share = scale * scale * scale * sums.y;
  for (var i = lane; i < K; i += LANES) {
    var value = scale * dy[row + i] * weight[i] - share * x[row + i];
    if (ADD) { value += out[row + i]; }
    out[row + i] = value;
  }
}
