// gradient[n, r] += SCALE sum_m x[m, n] u[m, r]: the gradient of a matrix of a LoRA pair, with the matrix's layout.
// A workgroup computes COLUMNS columns n: its 256 / COLUMNS slices take the rows in turn.
// Bindings: 0 state; 1 x: (MAX_ROWS, N); 2 u: (MAX_ROWS, RANK); 3 gradient: by low_rank.wgsl.
// Constants: N, RANK (up to 16), B, FIRST_ROW, SCALE; COLUMNS, a power of two. Dispatch (ceil(N / COLUMNS)).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> u: array<f32>;
@group(0) @binding(3) var<storage, read_write> gradient: array<f32>;
#import low_rank

const SLICES = 256u / COLUMNS;
var<workgroup> sums: array<f32, 256u * RANK>;  // [slice][r][n]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let n0 = group.x * COLUMNS;
  let n = min(n0 + index % COLUMNS, N - 1u);
  let slice = index / COLUMNS;
  var own = array<f32, RANK>();
  for (var m = slice; m < state.count; m += SLICES) {
    let value = x[m * N + n];
    for (var r = 0u; r < RANK; r++) { own[r] += value * u[m * RANK + r]; }
  }
  for (var r = 0u; r < RANK; r++) { sums[(slice * RANK + r) * COLUMNS + index % COLUMNS] = own[r]; }
  for (var half = SLICES / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    for (var i = index; i < half * RANK * COLUMNS; i += 256u) { sums[i] += sums[i + half * RANK * COLUMNS]; }
  }
  workgroupBarrier();
  for (var i = index; i < COLUMNS * RANK; i += 256u) {
    let column = n0 + i % COLUMNS;
    if (column < N) { gradient[weight_at(column, i / COLUMNS)] += SCALE * sums[i]; }
  }
}
