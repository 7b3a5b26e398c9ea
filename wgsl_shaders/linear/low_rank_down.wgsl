// u[m, r] = SCALE sum_n x[m, n] w[n, r], for the few columns of a LoRA pair; with ADD, it is added to u.
// A workgroup of 64 computes four rows.
// Bindings: 0 state; 1 w: by low_rank.wgsl; 2 x: (MAX_ROWS, N); 3 u: (MAX_ROWS, RANK).
// Constants: N, RANK (up to 16), B, FIRST_ROW, SCALE, ADD. Dispatch (ceil(count / 4)).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> u: array<f32>;
#import low_rank

var<workgroup> sums: array<vec4f, 64u * RANK>;  // [invocation][r], of four rows

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m0 = group.x * 4u;
  if (m0 >= state.count) { return; }
  var own = array<vec4f, RANK>();
  for (var n = index; n < N; n += 64u) {
    var four = vec4f();
    for (var i = 0u; i < 4u; i++) { four[i] = x[min(m0 + i, state.count - 1u) * N + n]; }
    for (var r = 0u; r < RANK; r++) { own[r] += w[weight_at(n, r)] * four; }
  }
  for (var r = 0u; r < RANK; r++) { sums[index * RANK + r] = own[r]; }
  for (var half = 32u; half > 0u; half /= 2u) {
    workgroupBarrier();
    for (var i = index; i < half * RANK; i += 64u) { sums[i] += sums[i + half * RANK]; }
  }
  workgroupBarrier();
  let m = m0 + index / RANK;
  if (index < 4u * RANK && m < state.count) {
    let value = SCALE * sums[index % RANK][index / RANK];
    let at = m * RANK + index % RANK;
    if (ADD) { u[at] += value; } else { u[at] = value; }
  }
}
