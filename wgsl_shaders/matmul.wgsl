// y[m, Y_OFFSET + n] = sum_k W[n, k] x[m, k], for many rows m: tiles of 32 rows of x by 64 rows of W go through workgroup
// memory a block of 32 columns at a time; each of 128 invocations holds 4 x 4 sums.
// EPILOGUE 0: as it is; 1: added to what y holds; 2: silu(row n) * row (N + n), with W of 2 N rows (tiles of 32 + 32).
// Bindings: 0 state; 1 quants and 2 scales of W: rows of K values in blocks of 32; 3 x: (MAX_ROWS, K / 4) vec4f;
//           4 y: (MAX_ROWS, Y_STRIDE).
// Constants: K, N, BLOCKS (of W), Y_STRIDE, Y_OFFSET, EPILOGUE.
// Dispatch (g, h, ceil(count / 32)) with g * h >= ceil(N / 64), or ceil(N / 32) for EPILOGUE 2.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> quants: array<vec4u>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> x: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
#import dequantize8

const TILE_N = select(64u, 32u, EPILOGUE == 2u);
var<workgroup> x_tile: array<vec4f, 256>;  // [k 32][m / 4 8]
var<workgroup> w_tile: array<vec4f, 512>;  // [k 32][n / 4 16]

fn weight_row(n0: u32, i: u32) -> u32 {
  if (EPILOGUE == 2u && i >= 32u) { return N + min(n0 + i - 32u, N - 1u); }
  return min(n0 + i, N - 1u);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let m0 = group.z * 32u;
  let n0 = (group.y * groups.x + group.x) * TILE_N;
  if (m0 >= state.count || n0 >= N) { return; }
  let tm = index % 8u;   // rows m0 + 4 tm ..
  let tn = index / 8u;   // columns n0 + 4 tn ..
  var sums: array<vec4f, 4>;  // [m][n 4]
  for (var block = 0u; block < K / 32u; block++) {
    // x: 32 rows of 8 vec4f; an invocation brings two and spreads each over four k.
    for (var i = index; i < 256u; i += 128u) {
      let m = i / 8u;
      let k = i % 8u * 4u;
      let value = x[(m0 + m) * (K / 4u) + block * 8u + i % 8u];
      for (var j = 0u; j < 4u; j++) { x_tile[(k + j) * 8u + m / 4u][m % 4u] = value[j]; }
    }
    // W: 64 rows of 4 units of 8 values; an invocation brings two units.
    for (var i = index; i < 256u; i += 128u) {
      let n = i / 4u;
      let k = i % 4u * 4u;
      let values = dequantize8(load_block(weight_row(n0, n), block), i % 4u);
      for (var j = 0u; j < 4u; j++) {
        w_tile[(k + j) * 16u + n / 4u][n % 4u] = values[0][j];
        w_tile[(k + j + 16u) * 16u + n / 4u][n % 4u] = values[1][j];
      }
    }
    workgroupBarrier();
    for (var k = 0u; k < 32u; k++) {
      let xs = x_tile[k * 8u + tm];
      let ws = w_tile[k * 16u + tn];
      sums[0] += xs.x * ws;
      sums[1] += xs.y * ws;
      sums[2] += xs.z * ws;
      sums[3] += xs.w * ws;
    }
    workgroupBarrier();
  }
  if (EPILOGUE == 2u) {
    // Columns 32.. hold the up rows: hand them to the invocations that hold the gates, through x_tile.
    if (tn >= 8u) {
      for (var m = 0u; m < 4u; m++) { x_tile[(tm * 4u + m) * 8u + tn - 8u] = sums[m]; }
    }
    workgroupBarrier();
    if (tn >= 8u) { return; }
    for (var m = 0u; m < 4u; m++) {
      sums[m] = sums[m] / (1.0 + exp(-sums[m])) * x_tile[(tm * 4u + m) * 8u + tn];
    }
  }
  for (var m = 0u; m < 4u; m++) {
    for (var j = 0u; j < 4u; j++) {
      let row = m0 + tm * 4u + m;
      let n = n0 + tn * 4u + j;
      if (row < state.count && n < N) {
        let at = row * Y_STRIDE + Y_OFFSET + n;
        if (EPILOGUE == 1u) { y[at] += sums[m][j]; } else { y[at] = sums[m][j]; }
      }
    }
  }
}
