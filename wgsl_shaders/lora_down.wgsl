// A x of each linear of a run (snippets/lora_matrices.wgsl), which the kernels of the linears read. With NORM the norm's weights are
// part of A: those kernels multiply by the norm's scale.
// Bindings: 0 state; 1 x: (MAX_ROWS, K / 4) vec4f; 2 vectors: the norm's weight (K / 4) vec4f, with NORM, any buffer
//           without; 3 lora: A x of MAX_ROWS rows, and the sets.
// Constants: K, NORM, M_TILE, WORKGROUP: a multiple of RANK, RANK for no barrier; RANK, LINEARS, LORA_X, LORA_A, LORA_SET.
// Dispatch (LINEARS, 1, ceil(count / M_TILE)).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read> vectors: array<vec4f>;
@group(0) @binding(3) var<storage, read_write> lora: array<vec4f>;

const QUADS = WORKGROUP / RANK;
var<workgroup> partial: array<f32, select(1u, M_TILE * WORKGROUP, QUADS > 1u)>;

fn put(m: u32, linear: u32, i: u32, sum: f32) {
  let at = (m * LINEARS + linear) * RANK + i;
  if (m < state.count) { lora[LORA_X + at / 4u][at % 4u] = sum; }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m0 = group.z * M_TILE;
  if (m0 >= state.count) { return; }
  let a = (state.adapter - 1u) * LORA_SET + LORA_A + group.x * (K / 4u) * RANK + index % RANK;
  var sums: array<f32, M_TILE>;
  for (var quad = index / RANK; quad < K / 4u; quad += QUADS) {
    var column = lora[a + quad * RANK];
    if (NORM) { column *= vectors[quad]; }
    for (var m = 0u; m < M_TILE; m++) { sums[m] += dot(column, x[min(m0 + m, MAX_ROWS - 1u) * (K / 4u) + quad]); }
  }
  if (QUADS == 1u) {
    for (var m = 0u; m < M_TILE; m++) { put(m0 + m, group.x, index, sums[m]); }
    return;
  }
  for (var m = 0u; m < M_TILE; m++) { partial[m * WORKGROUP + index] = sums[m]; }
  workgroupBarrier();
  for (var i = index; i < M_TILE * RANK; i += WORKGROUP) {
    var sum = 0.0;
    for (var share = 0u; share < QUADS; share++) { sum += partial[i / RANK * WORKGROUP + share * RANK + i % RANK]; }
    put(m0 + i / RANK, group.x, i % RANK, sum);
  }
}
