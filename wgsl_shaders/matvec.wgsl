// y[m, Y_OFFSET + n] = sum_k W[n, k] x[m, k], for few rows m.
// EPILOGUE 0: as it is; 1: added to what y holds (the residual); 2: silu(row n) * row (N + n), with W of 2 N rows.
// Bindings: 0 state; 1 quants and 2 scales of W: rows of K values in blocks of 32; 3 x: (MAX_ROWS, K / 4) vec4f;
//           4 y: (MAX_ROWS, Y_STRIDE).
// Constants: K, N, BLOCKS (of W), Y_STRIDE, Y_OFFSET, EPILOGUE; M_TILE rows of x an invocation, LANES invocations a row of W
// (a power of two; they share the work by blocks), WORKGROUP = LANES * rows of W a workgroup; ALL_ROWS: the y of all of
// the state's rows is wanted, otherwise of one.
// Dispatch (g, h, ceil(count / M_TILE)) with g * h >= ceil(N / (WORKGROUP / LANES)).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> quants: array<vec4u>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> x: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
#import dequantize
#import reduce

// Lanes that share a block, each with 32 / BLOCK_LANES of its values.
const BLOCK_LANES = min(LANES, 4u);

fn dot_row(n: u32, m0: u32, lane: u32) -> array<f32, M_TILE> {
  var sums: array<f32, M_TILE>;
  for (var block = lane / BLOCK_LANES; block < K / 32u; block += LANES / BLOCK_LANES) {
    let b = load_block(n * (K / 32u) + block);
    for (var w = lane % BLOCK_LANES; w < 4u; w += BLOCK_LANES) {
      let values = dequantize8(b, w);
      for (var m = 0u; m < M_TILE; m++) {
        let at = (m0 + m) * (K / 4u) + block * 8u + w;
        sums[m] += dot(values[0], x[at]) + dot(values[1], x[at + 4u]);
      }
    }
  }
  return sums;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let count = select(1u, state.count, ALL_ROWS);
  let m0 = group.z * M_TILE;
  if (m0 >= count) { return; }
  let lane = index % LANES;
  let n = (group.y * groups.x + group.x) * (WORKGROUP / LANES) + index / LANES;
  let row = min(n, N - 1u);
  var sums = dot_row(row, m0, lane);
  var ups: array<f32, M_TILE>;
  if (EPILOGUE == 2u) { ups = dot_row(N + row, m0, lane); }
  for (var m = 0u; m < M_TILE; m++) {
    var value = reduce_lanes(sums[m], index);
    if (EPILOGUE == 2u) { value = value / (1.0 + exp(-value)) * reduce_lanes(ups[m], index); }
    if (lane == 0u && n < N && m0 + m < count) {
      let at = (m0 + m) * Y_STRIDE + Y_OFFSET + n;
      if (EPILOGUE == 1u) { value += y[at]; }
      y[at] = value;
    }
  }
}
