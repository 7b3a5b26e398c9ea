// dx[m, k] = sum_n dy[m, n] W[n, k] over the N rows of W from the first on; with ADD, it is added to dx. Tiles of 32
// rows of dy by 32 * WIDE columns of W. A tile is shared by SLICES slices of 32 invocations (split-K): each takes every
// SLICES-th group of 32 rows of W, in separate workgroup memory, and loads its next one meanwhile. An invocation holds
// 8 x 4 * WIDE sums, which are added over the slices at the end.
// Bindings: 0 state; 1 quants and 2 scales of W: rows of K values in blocks of 32; 3 dy: (MAX_ROWS, N / 4) vec4f; 4 dx:
//           (MAX_ROWS, K / 4) vec4f.
// Constants: K, N (a multiple of 4), BLOCKS (of W), ADD, SLICES, WIDE; those of the snippet `gradient_row`.
// Dispatch (ceil(K / (32 * WIDE)), ceil(count / 32)).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> quants: array<vec4u>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> dy: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> dx: array<vec4f>;
#import dequantize8
#import gradient_row

const COLUMNS = ROW_BLOCKS;
const QUADS = 8u * WIDE;                      // of a tile's columns
const STEPS = (N + 31u) / 32u;
var<workgroup> dy_tile: array<array<array<vec4f, 8>, 32>, SLICES>;     // [n][m / 4]
var<workgroup> w_tile: array<array<array<vec4f, QUADS>, 32>, SLICES>;  // [n][k / 4 ^ n % 8]; at the end sums: [m][k / 4]

// The quads `quad` and quad + 4 of 32 columns of dy, for four rows; zeros behind the last column.
alias Quads = array<array<vec4f, 4>, 2>;
fn load_quads(m: u32, step: u32, quad: u32) -> Quads {
  var quads: Quads;
  for (var h = 0u; h < 2u; h++) {
    let column = step * 8u + quad + 4u * h;
    for (var r = 0u; r < 4u; r++) {
      quads[h][r] = select(vec4f(), dy[min(m + r, MAX_ROWS - 1u) * (N / 4u) + min(column, N / 4u - 1u)], column < N / 4u);
    }
  }
  return quads;
}

alias Blocks = array<Block, WIDE>;
fn load_blocks(k0: u32, n: u32) -> Blocks {
  var blocks: Blocks;
  for (var i = 0u; i < WIDE; i++) { blocks[i] = load_block(gradient_row(min(n, N - 1u)), min(k0 + i, COLUMNS - 1u)); }
  return blocks;
}

@compute @workgroup_size(32u * SLICES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m0 = group.y * 32u;
  let k0 = group.x * WIDE;  // a block of columns
  if (m0 >= state.count) { return; }
  let slice = index / 32u;
  let lane = index % 32u;
  // An invocation loads row `lane` of 32 of W and two quads of rows m0 + 4 tx .. of dy; its sums are those of rows
  // m0 + 8 tm .. and of quads tk and 8 + tk of the columns.
  let tx = lane % 8u;
  let quad = lane / 8u;
  let tm = lane % 4u;
  let tk = lane / 4u;
  // Only constants index these, so that they stay in registers.
  var sums: array<vec4f, 8>;
  var more: array<vec4f, 8>;
  var blocks = load_blocks(k0, 32u * slice + lane);
  var quads = load_quads(m0 + 4u * tx, slice, quad);
  for (var first = 0u; first < STEPS; first += SLICES) {
    for (var i = 0u; i < WIDE; i++) {
      for (var w = 0u; w < 4u; w++) {
        let values = dequantize8(blocks[i], w);
        // Neighbouring rows are in different banks.
        w_tile[slice][lane][8u * i + (w ^ (lane % 8u))] = values[0];
        w_tile[slice][lane][8u * i + ((w + 4u) ^ (lane % 8u))] = values[1];
      }
    }
    for (var h = 0u; h < 2u; h++) {
      let q = quads[h];
      for (var j = 0u; j < 4u; j++) {
        dy_tile[slice][4u * (quad + 4u * h) + j][tx] = vec4f(q[0][j], q[1][j], q[2][j], q[3][j]);
      }
    }
    workgroupBarrier();
    if (first + SLICES < STEPS) {
      blocks = load_blocks(k0, 32u * (first + SLICES + slice) + lane);
      quads = load_quads(m0 + 4u * tx, first + SLICES + slice, quad);
    }
    // Behind the last column dy is 0.
    if (first + slice < STEPS) {
      for (var n = 0u; n < 32u; n++) {
        let low = dy_tile[slice][n][2u * tm];
        let high = dy_tile[slice][n][2u * tm + 1u];
        let ws = w_tile[slice][n][tk ^ (n % 8u)];
        sums[0] += low.x * ws;
        sums[1] += low.y * ws;
        sums[2] += low.z * ws;
        sums[3] += low.w * ws;
        sums[4] += high.x * ws;
        sums[5] += high.y * ws;
        sums[6] += high.z * ws;
        sums[7] += high.w * ws;
        if (WIDE > 1u) {
          let others = w_tile[slice][n][8u + (tk ^ (n % 8u))];
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
    w_tile[slice][8u * tm + m][tk] = sums[m];
    if (WIDE > 1u) { w_tile[slice][8u * tm + m][8u + tk] = more[m]; }
  }
  workgroupBarrier();
  // All invocations share the work of writing the tile's quads of dx.
  for (var i = index; i < 32u * QUADS; i += 32u * SLICES) {
    let m = i / QUADS;
    let k = i % QUADS;
    if (m0 + m >= state.count || k0 * 8u + k >= K / 4u) { continue; }
    var sum = vec4f();
    for (var s = 0u; s < SLICES; s++) { sum += w_tile[s][m][k]; }
    let at = (m0 + m) * (K / 4u) + k0 * 8u + k;
    if (ADD) { dx[at] += sum; } else { dx[at] = sum; }
  }
}
