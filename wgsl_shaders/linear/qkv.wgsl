// The linears of q, k and v with their biases, the rotation, and the store of keys and values to the layer's pages, for
// few rows m. q_out[m] = rope(Wq x[m]); the pages get rope(Wk x[m]) and Wv x[m] at each row's position. With NORM, x is
// normalized by RMS first.
// Bindings: 0 state; 1 quants and 2 scales of W: rows of K values in blocks of 32, for N / HEAD_DIM heads from
//           FIRST_HEAD on, counted over the heads of q, then k, then v; 3 x: (MAX_ROWS, K / 4) vec4f or its limbs; 4
//           vectors: the norm's weight (K,), with NORM, and from BIAS_AT on the bias of each row of W, with ADD_BIAS;
//           any buffer without both; 5 angles: (positions, PAIRS) of (cos, sin), any buffer if PAIRS is 0; those of
//           qkv_binding.wgsl: 6 page_table; 7 q_out: (MAX_ROWS, HEADS, HEAD_DIM); 8 kv: the layer's pages.
// Constants: K, N, FIRST_ROW (of W), FIRST_HEAD, HEADS, KV_HEADS, HEAD_DIM, PAGE, MAX_PAGES; WORKGROUP, SINGLE_ROW as
// in matvec; those of dot_rows.wgsl; ADD_BIAS, BIAS_AT; ROWS = 2: an item is a pair that is rotated together,
// INTERLEAVED: (2i, 2i + 1), otherwise (i, i + PAIRS). The first PAIRS pairs of a head rotate.
// Dispatch (g, h, ceil(count / M_TILE)) with g * h * lane groups of a workgroup * ROW_TILES >= N / 2.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> quants: array<vec4u>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
#import x_binding
@group(0) @binding(4) var<storage, read> vectors: array<vec4f>;
@group(0) @binding(5) var<storage, read> angles: array<vec2f>;
#import dot_rows
#import bias
#import qkv_binding

const HALF = HEAD_DIM / 2u;
const OUTPUTS_PER_ITEM = 1u;

fn head_of(item: u32) -> u32 { return FIRST_HEAD + item / HALF; }

// The index of a pair's r-th value in its head.
fn in_head(item: u32, r: u32) -> u32 {
  let i = item % HALF;
  return select(i + r * PAIRS, 2u * i + r, INTERLEAVED || (PAIRS < HALF && i >= PAIRS));
}
fn row_of(item: u32, r: u32) -> u32 {
  let own = min(item, N / 2u - 1u);
  return own / HALF * HEAD_DIM + in_head(own, r);
}
fn weight_row(item: u32, r: u32) -> u32 { return FIRST_ROW + row_of(item, r); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let m0 = group.z * M_TILE;
  var count = 1u;
  if (!SINGLE_ROW) {
    count = state.count;
    if (m0 >= count) { return; }
  }
  let item = first_item(group.y * groups.x + group.x, index);
  // The row's place, rotation and biases are read before the sums are computed, so that nothing waits for them later.
  var rotations: array<vec2f, OUTPUTS_PER_LANE>;
  var keys: array<u32, OUTPUTS_PER_LANE>;
  for (var o = 0u; o < OUTPUTS_PER_LANE; o++) {
    let output = output_of(o, index);
    let pair = min(item + output.row, N / 2u - 1u);
    let row = state.rows[min(m0 + output.m, MAX_ROWS - 1u)];
    if (PAIRS > 0u) {
      let i = pair % HALF;
      rotations[o] = angles[row.position * PAIRS + i];
      if (PAIRS < HALF && i >= PAIRS) { rotations[o] = vec2f(1.0, 0.0); }
    }
    keys[o] = place_in_pages(row.slot, row.position, head_of(pair));
  }
  var biases: array<vec2f, OUTPUTS_PER_LANE>;
  if (ADD_BIAS) {
    for (var o = 0u; o < OUTPUTS_PER_LANE; o++) {
      let pair = item + output_of(o, index).row;
      biases[o] = vec2f(bias_of(row_of(pair, 0u)), bias_of(row_of(pair, 1u)));
    }
  }
  var sums = dot_rows(item, m0, index);
  for (var o = 0u; o < OUTPUTS_PER_LANE; o++) {
    let output = output_of(o, index);
    let pair_index = item + output.row;
    if (!output.exists || m0 + output.m >= count || pair_index >= N / 2u) { continue; }
    let head = head_of(pair_index);
    var pair = vec2f(sums[o][0], sums[o][1]);
    if (ADD_BIAS) { pair += biases[o]; }
    if (PAIRS > 0u && head < HEADS + KV_HEADS) {
      let angle = rotations[o];
      pair = vec2f(pair.x * angle.x - pair.y * angle.y, pair.x * angle.y + pair.y * angle.x);
    }
    store_in_head(m0 + output.m, head, keys[o], in_head(pair_index, 0u), pair.x);
    store_in_head(m0 + output.m, head, keys[o], in_head(pair_index, 1u), pair.y);
  }
}
