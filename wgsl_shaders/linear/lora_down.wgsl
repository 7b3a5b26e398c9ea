// A x for an operation's linears (snippets/lora_matrices.wgsl), whose kernels read it. With LIMBS, further workgroups
// convert x to integers at the same time, like limbs.wgsl, for the matmul that reads both.
// Bindings: 0 state; 1 x: (MAX_ROWS, K / 4) vec4f; 2 lora; with LIMBS 3 records, as in
//           limbs.wgsl.
// Constants: K; M_TILE: rows of x per workgroup; WORKGROUP: a multiple of RANK; LORA_LANES: the number of invocations
// that are summed by shuffles, a multiple of RANK, or RANK for none; RANK, LINEARS; LORA_A: the start of A or A w.
// Dispatch (LINEARS, 1, ceil(count / M_TILE)), with LIMBS (LINEARS + 1, 1, ...).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> lora: array<f32>;
#import reduce
#import limbs_of_rows

const QUADS = WORKGROUP / RANK;        // invocations with the same row of A
const SHARES = WORKGROUP / LORA_LANES; // groups of lanes, each summed by shuffles
var<workgroup> partial: array<f32, M_TILE * SHARES * RANK>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m0 = group.z * M_TILE;
  if (m0 >= state.count) { return; }
  if (LIMBS && group.x == LINEARS) {
    make_limbs(m0, index);
    return;
  }
  let a = LORA_A + group.x * K * RANK + index % RANK;
  var sums: array<f32, M_TILE>;
  for (var q = 0u; q < K / 4u; q += QUADS) {
    let quad = min(q + index / RANK, K / 4u - 1u);
    let at = a + quad * 4u * RANK;
    var column = vec4f(lora[at], lora[at + RANK], lora[at + 2u * RANK], lora[at + 3u * RANK]);
    column = select(vec4f(), column, q + index / RANK < K / 4u);
    for (var m = 0u; m < M_TILE; m++) { sums[m] += dot(column, x[min(m0 + m, MAX_ROWS - 1u) * (K / 4u) + quad]); }
  }
  for (var m = 0u; m < M_TILE; m++) {
    for (var mask = RANK; mask < LORA_LANES; mask *= 2u) { sums[m] += shuffle_xor(sums[m], mask, index); }
    if (index % LORA_LANES < RANK) { partial[(m * SHARES + index / LORA_LANES) * RANK + index % RANK] = sums[m]; }
  }
  if (WORKGROUP > RANK) { workgroupBarrier(); }
  for (var i = index; i < M_TILE * RANK; i += WORKGROUP) {
    var sum = 0.0;
    for (var share = 0u; share < SHARES; share++) { sum += partial[(i / RANK * SHARES + share) * RANK + i % RANK]; }
    let m = m0 + i / RANK;
    if (m < state.count) { lora[(m * LINEARS + group.x) * RANK + i % RANK] = sum; }
  }
}
