// y[m, Y_OFFSET + n] = sum_k W[n, k] x[m, k] + bias[n], for many rows m: tiles of 32 rows of x by 32 * WIDE rows of W.
// A tile is shared by SLICES slices of 32 invocations (split-K): each slice takes every SLICES-th block of 32 columns,
// in separate workgroup memory, and loads its next block meanwhile. An invocation holds 8 x 4 * WIDE sums, which are
// added over the slices at the end.
// EPILOGUE as in matvec.wgsl; with 2, half of a tile's rows of W are from the first N rows and half from the others.
// Bindings: 0 state; 1 quants and 2 scales of W: rows of K values in blocks of 32; 3 x: (MAX_ROWS, K / 4) vec4f;
//           4 vectors: from BIAS_AT on the bias of each row of W, any buffer without ADD_BIAS; 5 y: (MAX_ROWS,
//           Y_STRIDE).
// Constants: K, N, BLOCKS (of W), FIRST_ROW, Y_STRIDE, Y_OFFSET, EPILOGUE, GELU, ADD_BIAS, BIAS_AT as in matvec.wgsl;
// SLICES, WIDE.
// Dispatch (g, h, ceil(count / 32)) with g * h >= ceil(N / (32 * WIDE)), or ceil(N / (16 * WIDE)) for EPILOGUE 2.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> quants: array<vec4u>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> x: array<vec4f>;
@group(0) @binding(4) var<storage, read> vectors: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
#import dequantize8
#import bias
#import activation
#import lora_tile_none

const ROWS = 32u * WIDE;  // of W
#import weight_tile
const COLUMNS = ROW_BLOCKS;
var<workgroup> x_tile: array<array<array<vec4f, 8>, 32>, SLICES>;          // [k][m / 4]
var<workgroup> w_tile: array<array<array<vec4f, ROWS / 4u>, 32>, SLICES>;  // [k][n / 4]; at the end sums: [m][n / 4]

// The quads `quad` and quad + 4 of a block, for four rows of x.
alias Quads = array<array<vec4f, 4>, 2>;
fn load_quads(m: u32, block: u32, quad: u32) -> Quads {
  var quads: Quads;
  for (var h = 0u; h < 2u; h++) {
    for (var r = 0u; r < 4u; r++) { quads[h][r] = x[min(m + r, MAX_ROWS - 1u) * (K / 4u) + block * 8u + quad + 4u * h]; }
  }
  return quads;
}

fn lora_of4(m: u32, row: u32) -> vec4f {
  return vec4f(lora_of(m, row), lora_of(m, row + 1u), lora_of(m, row + 2u), lora_of(m, row + 3u));
}
fn biases_of(row: u32) -> vec4f { return vec4f(bias_of(row), bias_of(row + 1u), bias_of(row + 2u), bias_of(row + 3u)); }

alias Blocks = array<Block, WIDE>;
fn load_blocks(n0: u32, lane: u32, column: u32) -> Blocks {
  var blocks: Blocks;
  for (var i = 0u; i < WIDE; i++) { blocks[i] = load_block(weight_row(n0, 32u * i + lane), column); }
  return blocks;
}

@compute @workgroup_size(32u * SLICES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let m0 = group.z * 32u;
  let n0 = (group.y * groups.x + group.x) * TILE_N;
  if (m0 >= state.count || n0 >= N) { return; }
  let slice = index / 32u;
  let lane = index % 32u;
  // An invocation loads rows `lane`, lane + 32 .. of W and two quads of rows m0 + 4 tx .. of x; its sums are those of
  // rows m0 + 8 tm .. and columns 4 tn .., 32 + 4 tn ..
  let tx = lane % 8u;
  let quad = lane / 8u;
  let tm = lane % 4u;
  let tn = lane / 4u;
  // [m][n 4]; `more` holds the sums of a wide tile's columns from 32 on. Only constants index them, so that they stay
  // in registers.
  var sums: array<vec4f, 8>;
  var more: array<vec4f, 8>;
  var blocks = load_blocks(n0, lane, min(slice, COLUMNS - 1u));
  var quads = load_quads(m0 + 4u * tx, min(slice, COLUMNS - 1u), quad);
  for (var first = 0u; first < COLUMNS; first += SLICES) {
    for (var i = 0u; i < WIDE; i++) {
      for (var w = 0u; w < 4u; w++) {
        let values = dequantize8(blocks[i], w);
        for (var j = 0u; j < 4u; j++) {
          w_tile[slice][4u * w + j][8u * i + lane / 4u][lane % 4u] = values[0][j];
          w_tile[slice][16u + 4u * w + j][8u * i + lane / 4u][lane % 4u] = values[1][j];
        }
      }
    }
    for (var h = 0u; h < 2u; h++) {
      let q = quads[h];
      for (var j = 0u; j < 4u; j++) {
        x_tile[slice][4u * (quad + 4u * h) + j][tx] = vec4f(q[0][j], q[1][j], q[2][j], q[3][j]);
      }
    }
    workgroupBarrier();
    if (first + SLICES < COLUMNS) {
      let next = min(first + SLICES + slice, COLUMNS - 1u);
      blocks = load_blocks(n0, lane, next);
      quads = load_quads(m0 + 4u * tx, next, quad);
    }
    if (first + slice < COLUMNS) {
      for (var k = 0u; k < 32u; k++) {
        let low = x_tile[slice][k][2u * tm];
        let high = x_tile[slice][k][2u * tm + 1u];
        let ws = w_tile[slice][k][tn];
        sums[0] += low.x * ws;
        sums[1] += low.y * ws;
        sums[2] += low.z * ws;
        sums[3] += low.w * ws;
        sums[4] += high.x * ws;
        sums[5] += high.y * ws;
        sums[6] += high.z * ws;
        sums[7] += high.w * ws;
        if (WIDE > 1u) {
          let others = w_tile[slice][k][8u + tn];
          more[0] += low.x * others;
          more[1] += low.y * others;
          more[2] += low.z * others;
          more[3] += low.w * others;
          more[4] += high.x * others;
          more[5] += high.y * others;
          more[6] += high.z * others;
          more[7] += high.w * others;
        }
      }
    }
    workgroupBarrier();
  }
  for (var m = 0u; m < 8u; m++) {
    w_tile[slice][8u * tm + m][tn] = sums[m];
    if (WIDE > 1u) { w_tile[slice][8u * tm + m][8u + tn] = more[m]; }
  }
  workgroupBarrier();
  // All invocations share the work of writing the tile's quads of y.
  for (var i = index; i < 8u * TILE_N; i += 32u * SLICES) {
    let m = i / (TILE_N / 4u);
    let n4 = i % (TILE_N / 4u);
    var sum = vec4f();
    for (var s = 0u; s < SLICES; s++) { sum += w_tile[s][m][n4]; }
    if (EPILOGUE == 2u) {
      var up = vec4f();
      for (var s = 0u; s < SLICES; s++) { up += w_tile[s][m][n4 + TILE_N / 4u]; }
      if (ADD_BIAS) {
        sum += biases_of(n0 + 4u * n4);
        up += biases_of(N + n0 + 4u * n4);
      }
      if (LORA) {
        sum += lora_of4(m0 + m, n0 + 4u * n4);
        up += lora_of4(m0 + m, N + n0 + 4u * n4);
      }
      sum = activation4(sum) * up;
    } else {
      if (ADD_BIAS) { sum += biases_of(n0 + 4u * n4); }
      if (LORA) { sum += lora_of4(m0 + m, n0 + 4u * n4); }
    }
    if (m0 + m >= state.count) { continue; }
    for (var j = 0u; j < 4u; j++) {
      let n = n0 + 4u * n4 + j;
      if (n >= N) { break; }
      let at = (m0 + m) * Y_STRIDE + Y_OFFSET + n;
      if (EPILOGUE == 1u) { y[at] += sum[j]; } else { y[at] = sum[j]; }
    }
  }
}
