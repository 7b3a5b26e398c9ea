// y[m, n] = SCALE sum_r u[m, r] w[n, r], from the few columns of a LoRA pair; with ADD, it is added to y.
// An invocation computes a column of eight rows.
// Bindings: 0 state; 1 w: by low_rank.wgsl; 2 u: (MAX_ROWS, RANK); 3 y: (MAX_ROWS, N).
// Constants: N, RANK (up to 16), B, FIRST_ROW, SCALE, ADD, WORKGROUP. Dispatch (ceil(N / WORKGROUP), ceil(count / 8)).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read> u: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
#import low_rank

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let n = id.x;
  if (n >= N) { return; }
  var own = array<f32, RANK>();
  for (var r = 0u; r < RANK; r++) { own[r] = SCALE * w[weight_at(n, r)]; }
  for (var m = id.y * 8u; m < min(id.y * 8u + 8u, state.count); m++) {
    var sum = 0.0;
    for (var r = 0u; r < RANK; r++) { sum += u[m * RANK + r] * own[r]; }
    if (ADD) { y[m * N + n] += sum; } else { y[m * N + n] = sum; }
  }
}
