// y[m, Y_OFFSET + n] = sum_k W[n, k] x[m, k] + bias[n], for many rows m and quantized W, in integers: a product of four
// codes with a limb of x is one instruction. Tiles of 64 rows of x by 8 * WIDE rows of W, shared by SLICES slices of 64
// invocations (split-K): each slice takes every SLICES-th block of 32 columns, in separate workgroup memory. An
// invocation holds 8 x WIDE sums, which are added over the slices at the end. Loading the next block meanwhile would
// take registers, and so reduce the number of workgroups that run side by side.
// EPILOGUE as in matvec.wgsl; with 2, half of a tile's rows of W are from the first N rows and half from the others.
// Bindings: 0 state; 1 quants and 2 scales of W: rows of K values in blocks of 32; 3 limbs of x, by limbs.wgsl;
//           4 vectors: from BIAS_AT on the bias of each row of W, any buffer without ADD_BIAS; 5 y: (MAX_ROWS,
//           Y_STRIDE).
// Constants: K, N, BLOCKS (of W), FIRST_ROW, Y_STRIDE, Y_OFFSET, EPILOGUE, GELU, ADD_BIAS, BIAS_AT as in matvec.wgsl;
// SLICES; WIDE, 4 or 8.
// Dispatch (g, h, ceil(count / 64)) with g * h >= ceil(N / (8 * WIDE)), or ceil(N / (4 * WIDE)) for EPILOGUE 2.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> quants: array<vec4u>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> limbs: array<vec4u>;
@group(0) @binding(4) var<storage, read> vectors: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
#import dequantize
#import bias
#import activation
#import lora_tile_none

const ROWS = 8u * WIDE;  // of W
#import weight_tile
const COLUMNS = K / 32u;
// Odd numbers of vec4u put neighbouring records into different banks.
alias Limbs = array<vec4u, 5>;
alias Codes = array<vec4u, 3>;  // of values 0..15, of the others, then scales and offsets of both halves
var<workgroup> x_tile: array<array<Limbs, 64>, SLICES>;  // at the end sums: [invocation][row, half]
var<workgroup> w_tile: array<array<Codes, ROWS>, SLICES>;

fn codes_of(block: Block) -> Codes {
  let codes = packed_codes(block);
  let scale = block.scale / UNIT;
  return Codes(codes[0], codes[1], bitcast<vec4u>(vec4f(scale, fma(vec2f(MIDDLE), block.scale, block.offset))));
}

fn add_dot(sum: i32, codes: vec4u, limb: vec4u) -> i32 {
  return sum + dot4I8Packed(codes.x, limb.x) + dot4I8Packed(codes.y, limb.y)
       + dot4I8Packed(codes.z, limb.z) + dot4I8Packed(codes.w, limb.w);
}
// The products of all 32 codes with x, or of the first or the last 16: up to 2^27.
fn whole(w: Codes, x: Limbs) -> i32 {
  let upper = add_dot(add_dot(0, w[0], x[0]), w[1], x[1]);
  return add_dot(add_dot(upper << 8u, w[0], x[2]), w[1], x[3]);
}
fn first(w: Codes, x: Limbs) -> i32 { return add_dot(add_dot(0, w[0], x[0]) << 8u, w[0], x[2]); }
fn last(w: Codes, x: Limbs) -> i32 { return add_dot(add_dot(0, w[1], x[1]) << 8u, w[1], x[3]); }

// Four rows of W: their codes, and by halves of a block their scales and offsets.
struct Four { codes: array<Codes, 4>, scale: array<vec4f, 2>, offset: array<vec4f, 2> }
fn load_four(slice: u32, row: u32) -> Four {
  let codes = array<Codes, 4>(
    w_tile[slice][row], w_tile[slice][row + 8u], w_tile[slice][row + 16u], w_tile[slice][row + 24u]);
  let a = bitcast<vec4f>(codes[0][2]);
  let b = bitcast<vec4f>(codes[1][2]);
  let c = bitcast<vec4f>(codes[2][2]);
  let d = bitcast<vec4f>(codes[3][2]);
  return Four(codes, array<vec4f, 2>(vec4f(a.x, b.x, c.x, d.x), vec4f(a.y, b.y, c.y, d.y)),
              array<vec4f, 2>(vec4f(a.z, b.z, c.z, d.z), vec4f(a.w, b.w, c.w, d.w)));
}
fn products(w: Four, x: Limbs) -> vec4f {
  let x_scale = bitcast<vec4f>(x[4]);
  var found: vec4f;
  if (TWO_SCALES) {
    found = vec4f(vec4i(first(w.codes[0], x), first(w.codes[1], x), first(w.codes[2], x), first(w.codes[3], x)))
          * w.scale[0];
    found += vec4f(vec4i(last(w.codes[0], x), last(w.codes[1], x), last(w.codes[2], x), last(w.codes[3], x)))
           * w.scale[1];
    if (OFFSETS) { found += w.offset[0] * x_scale.z + w.offset[1] * x_scale.w; }
  } else {
    found = vec4f(vec4i(whole(w.codes[0], x), whole(w.codes[1], x), whole(w.codes[2], x), whole(w.codes[3], x)))
          * w.scale[0];
    if (OFFSETS) { found += w.offset[0] * x_scale.y; }
  }
  return found * x_scale.x;
}

alias Sums = array<vec4f, 2>;  // of a row of x and columns tn, tn + 8 ...

fn write_row(m: u32, n0: u32, tn: u32, all: Sums) {
  if (m >= state.count) { return; }
  var sums = all;
  for (var j = 0u; j < TILE_N / 8u; j++) {
    let n = n0 + tn + 8u * j;
    if (n >= N) { break; }
    var sum = sums[j / 4u][j % 4u];
    if (ADD_BIAS) { sum += bias_of(n); }
    if (EPILOGUE == 2u) {
      let pair = j + TILE_N / 8u;
      var up = sums[pair / 4u][pair % 4u];
      if (ADD_BIAS) { up += bias_of(N + n); }
      sum = activation(sum) * up;
    }
    let at = m * Y_STRIDE + Y_OFFSET + n;
    if (EPILOGUE == 1u) { sum += y[at]; }
    y[at] = sum;
  }
}

// Sums two rows over the slices, each in a different slice if there are several.
fn finish(slice: u32, lane: u32, m: u32, n0: u32, first: Sums, second: Sums) {
  let tn = lane % 8u;
  if (SLICES == 1u) {
    write_row(m, n0, tn, first);
    write_row(m + 8u, n0, tn, second);
    return;
  }
  x_tile[slice][lane][0] = bitcast<vec4u>(first[0]);
  x_tile[slice][lane][1] = bitcast<vec4u>(first[1]);
  x_tile[slice][lane][2] = bitcast<vec4u>(second[0]);
  x_tile[slice][lane][3] = bitcast<vec4u>(second[1]);
  workgroupBarrier();
  if (slice < 2u) {
    var sums: Sums;
    for (var s = 0u; s < SLICES; s++) {
      sums[0] += bitcast<vec4f>(x_tile[s][lane][2u * slice]);
      sums[1] += bitcast<vec4f>(x_tile[s][lane][2u * slice + 1u]);
    }
    write_row(m + 8u * slice, n0, tn, sums);
  }
  workgroupBarrier();
}

// An adapter's contribution to four columns of the tile, tn + 8 * eight ..: rows of B, and the linears that they belong
// to.
struct LoraFour { b: array<vec4f, 4>, linear: vec4u }
fn lora_four(n0: u32, tn: u32, eight: u32, quad: u32) -> LoraFour {
  var four: LoraFour;
  for (var c = 0u; c < 4u; c++) {
    let row = tile_row(n0, tn + 8u * (eight + c));
    four.b[c] = lora_b(row, quad);
    // With EPILOGUE 2 this is known at compile time: the same A x is loaded only once then.
    four.linear[c] = select(lora_linear_of(row), u32(eight + c >= TILE_N / 8u), EPILOGUE == 2u);
  }
  return four;
}
fn lora_products(four: LoraFour, m: u32, quad: u32) -> vec4f {
  let row = min(m, MAX_ROWS - 1u);
  return vec4f(dot(four.b[0], lora_x(row, four.linear[0], quad)), dot(four.b[1], lora_x(row, four.linear[1], quad)),
               dot(four.b[2], lora_x(row, four.linear[2], quad)), dot(four.b[3], lora_x(row, four.linear[3], quad)));
}

// The i-th part of the limbs of a tile's rows: neighbouring invocations read neighbouring addresses.
fn limbs_part(column: u32, m0: u32, i: u32) -> vec4u {
  return limbs[min((column * MAX_ROWS + m0) * 5u + i, COLUMNS * MAX_ROWS * 5u - 1u)];
}

@compute @workgroup_size(64u * SLICES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let m0 = group.z * 64u;
  let n0 = (group.y * groups.x + group.x) * TILE_N;
  if (m0 >= state.count || n0 >= N) { return; }
  let slice = index / 64u;
  let lane = index % 64u;
  let tn = lane % 8u;
  let tm = lane / 8u;
  let w_row = weight_row(n0, lane % ROWS);
  var low_sums: array<vec4f, 8>;   // of rows tm + 8 i and columns tn, tn + 8, tn + 16, tn + 24
  var high_sums: array<vec4f, 8>;  // and of columns tn + 32 ...; only constants index them, so that they stay in registers
  var column = min(slice, COLUMNS - 1u);
  var block = load_block(w_row, column);
  // The sums start with the adapter's contribution: its loads are in flight together with the first of x and W.
  if (LORA) {
    for (var quad = slice; quad < LORA_QUADS; quad += SLICES) {
      let low = lora_four(n0, tn, 0u, quad);
      low_sums[0] += lora_products(low, m0 + tm, quad);
      low_sums[1] += lora_products(low, m0 + tm + 8u, quad);
      low_sums[2] += lora_products(low, m0 + tm + 16u, quad);
      low_sums[3] += lora_products(low, m0 + tm + 24u, quad);
      low_sums[4] += lora_products(low, m0 + tm + 32u, quad);
      low_sums[5] += lora_products(low, m0 + tm + 40u, quad);
      low_sums[6] += lora_products(low, m0 + tm + 48u, quad);
      low_sums[7] += lora_products(low, m0 + tm + 56u, quad);
      if (WIDE > 4u) {
        let high = lora_four(n0, tn, 4u, quad);
        high_sums[0] += lora_products(high, m0 + tm, quad);
        high_sums[1] += lora_products(high, m0 + tm + 8u, quad);
        high_sums[2] += lora_products(high, m0 + tm + 16u, quad);
        high_sums[3] += lora_products(high, m0 + tm + 24u, quad);
        high_sums[4] += lora_products(high, m0 + tm + 32u, quad);
        high_sums[5] += lora_products(high, m0 + tm + 40u, quad);
        high_sums[6] += lora_products(high, m0 + tm + 48u, quad);
        high_sums[7] += lora_products(high, m0 + tm + 56u, quad);
      }
    }
  }
  for (var start = 0u; start < COLUMNS; start += SLICES) {
    let x_parts = Limbs(
      limbs_part(column, m0, lane), limbs_part(column, m0, lane + 64u), limbs_part(column, m0, lane + 128u),
      limbs_part(column, m0, lane + 192u), limbs_part(column, m0, lane + 256u));
    if (lane < ROWS) { w_tile[slice][lane] = codes_of(block); }
    x_tile[slice][lane / 5u][lane % 5u] = x_parts[0];
    x_tile[slice][(lane + 64u) / 5u][(lane + 64u) % 5u] = x_parts[1];
    x_tile[slice][(lane + 128u) / 5u][(lane + 128u) % 5u] = x_parts[2];
    x_tile[slice][(lane + 192u) / 5u][(lane + 192u) % 5u] = x_parts[3];
    x_tile[slice][(lane + 256u) / 5u][(lane + 256u) % 5u] = x_parts[4];
    workgroupBarrier();
    if (start + SLICES < COLUMNS) { column = min(start + SLICES + slice, COLUMNS - 1u); block = load_block(w_row, column); }
    if (start + slice < COLUMNS) {
      let low = load_four(slice, tn);
      var high = low;
      if (WIDE > 4u) { high = load_four(slice, tn + 32u); }
      let x0 = x_tile[slice][tm];
      low_sums[0] += products(low, x0);
      if (WIDE > 4u) { high_sums[0] += products(high, x0); }
      let x1 = x_tile[slice][tm + 8u];
      low_sums[1] += products(low, x1);
      if (WIDE > 4u) { high_sums[1] += products(high, x1); }
      let x2 = x_tile[slice][tm + 16u];
      low_sums[2] += products(low, x2);
      if (WIDE > 4u) { high_sums[2] += products(high, x2); }
      let x3 = x_tile[slice][tm + 24u];
      low_sums[3] += products(low, x3);
      if (WIDE > 4u) { high_sums[3] += products(high, x3); }
      let x4 = x_tile[slice][tm + 32u];
      low_sums[4] += products(low, x4);
      if (WIDE > 4u) { high_sums[4] += products(high, x4); }
      let x5 = x_tile[slice][tm + 40u];
      low_sums[5] += products(low, x5);
      if (WIDE > 4u) { high_sums[5] += products(high, x5); }
      let x6 = x_tile[slice][tm + 48u];
      low_sums[6] += products(low, x6);
      if (WIDE > 4u) { high_sums[6] += products(high, x6); }
      let x7 = x_tile[slice][tm + 56u];
      low_sums[7] += products(low, x7);
      if (WIDE > 4u) { high_sums[7] += products(high, x7); }
    }
    workgroupBarrier();
  }
  finish(slice, lane, m0 + tm, n0, Sums(low_sums[0], high_sums[0]), Sums(low_sums[1], high_sums[1]));
  finish(slice, lane, m0 + tm + 16u, n0, Sums(low_sums[2], high_sums[2]), Sums(low_sums[3], high_sums[3]));
  finish(slice, lane, m0 + tm + 32u, n0, Sums(low_sums[4], high_sums[4]), Sums(low_sums[5], high_sums[5]));
  finish(slice, lane, m0 + tm + 48u, n0, Sums(low_sums[6], high_sums[6]), Sums(low_sums[7], high_sums[7]));
}
