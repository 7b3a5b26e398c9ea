// y[m, s, n] = sum_k W[e, n, k] x[m, s, k] for the experts e that route.wgsl chose for row m.
// Bindings: 0 state; 1 quants and 2 scales of W: the experts' matrices of N rows, one below the other; 3 x: (MAX_ROWS,
//           K / 4) vec4f, of which a row of the state has USED, or, with SHARED, one that all its experts read; 4 any
//           buffer (dot_rows.wgsl reads norms there); 5 y: (rows of the state, USED, N); 6 route: (the same, 2 * USED).
// Constants: K, N, BLOCKS (of W), EXPERTS, USED, SHARED, WORKGROUP; those of dot_rows.wgsl, with M_TILE 1.
// Dispatch (g, h, count * USED) with g * h * lane groups of a workgroup * ROW_TILES >= items of ROWS rows of an expert.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> quants: array<vec4u>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
#import x_binding
@group(0) @binding(4) var<storage, read> vectors: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read> route: array<f32>;
#import dot_rows

const OUTPUTS_PER_ITEM = ROWS;
var<private> expert: u32;

fn weight_row(item: u32, r: u32) -> u32 { return expert * N + min(item * ROWS + r, N - 1u); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let slot = group.z;
  let m = slot / USED;
  if (m >= state.count) { return; }
  expert = min(u32(route[m * 2u * USED + slot % USED]), EXPERTS - 1u);
  let item = first_item(group.y * groups.x + group.x, index);
  let sums = dot_rows(item, select(slot, m, SHARED), index);
  for (var o = 0u; o < OUTPUTS_PER_LANE; o++) {
    let output = output_of(o, index);
    if (output.exists && item * ROWS + output.row < N) { y[slot * N + item * ROWS + output.row] = sums[o][0]; }
  }
}
