// out[m, h, :] = softmax_t(cap(SCALE q[m, h] . k[t, g])) v[t, g],
// t = first_seen[m] .. last_seen[m], g = h * KV_HEADS / HEADS
// For many rows, all of one sequence and at consecutive positions (flash attention, arXiv 2205.14135): a workgroup
// handles 32 rows of a head and iterates over tiles of 32 keys in workgroup memory with an online softmax. Its SLICES
// slices of 128 invocations take the tiles in turn, in separate memory; their results are merged at the end. An
// invocation computes, for four rows, the scores of two keys and every 16th quad of the outputs. It requests the next
// piece of keys or values before it works on the current one. A vec4f over rows holds rows r, r + 8, r + 16, r + 24.
// Bindings: 0 state; 1 q: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 page_table; 3 kv: the layer's pages;
//           4 out: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; with pages of all tiers 5 demoted: the layer's demoted
//           pages.
// `kv_quads`: reads the pages, of one tier or all.
// Constants: HEADS, KV_HEADS, HEAD_DIM, PAGE, MAX_PAGES, SCALE, SLICES, those of scores.wgsl. Dispatch (HEADS,
// ceil(count / 32), ceil(HEAD_DIM / 256)): a workgroup makes up to 256 values of an output.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> page_table: array<u32>;
@group(0) @binding(3) var<storage, read> kv: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4f>;
#import kv_pages
#import kv_quads
#import scores

const QUADS = HEAD_DIM / 4u;
const KEY_CHUNKS = (QUADS + 7u) / 8u;
const OUT_QUADS = min(QUADS, 64u);
const VALUE_CHUNKS = (OUT_QUADS + 15u) / 16u;
const STRIDE = 9u;  // quads from one row of 8 to the next: neighbouring rows lie in different banks
// Few values at a time, 512 quads altogether: an invocation's sums are then indexed by constants, and stay in
// registers.
const WIDTH = 16u * VALUE_CHUNKS;
const VALUES = 32u / select(select(select(8u, 4u, VALUE_CHUNKS <= 4u), 2u, VALUE_CHUNKS <= 2u), 1u, VALUE_CHUNKS == 1u);

var<workgroup> tile: array<array<vec4f, 576>, SLICES>;     // q [row 32][STRIDE] and k [key 32][STRIDE]; v [key VALUES][WIDTH]
var<workgroup> weights: array<array<vec4f, 256>, SLICES>;  // [key 32][rows 8]
var<workgroup> by_keys: array<array<vec4f, 128>, SLICES>;  // [key pair 16][rows 8]: the larger score of each pair, at the end sums

// Returns whether rows at these positions, which see up to `lasts`, see a key at t.
fn seen(t: u32, positions: vec4u, lasts: vec4u) -> vec4<bool> {
  if (WINDOW == 0u) { return vec4u(t) <= lasts; }
  return (vec4u(t) <= lasts) & (vec4u(t + WINDOW) > positions);
}

// The work of a workgroup: `slot` and head of the keys, its first row and head of q, the last position, and the first
// quad of the outputs.
struct Part { slot: u32, kv_head: u32, m0: u32, head: u32, last: u32, first_quad: u32 }
alias Piece = array<Quad, 4>;

// A quad of a key (which 0) or a value (1); zeros after the last position.
fn kv_quad(part: Part, t: u32, which: u32, quad: u32) -> Quad {
  if (t > part.last) { return Quad(); }
  return read_quad(page_of(part.slot, t), t, part.kv_head, which, quad);
}
fn value_quad(part: Part, t: u32, at: u32) -> Quad {
  let key = at / WIDTH;
  let quad = part.first_quad + at % WIDTH;
  if (key >= VALUES || quad >= QUADS) { return Quad(); }
  return kv_quad(part, t + key, 1u, quad);
}

// Two quads of q and two of the keys from t0 on: eight quads of each, from 8 chunk on, over the slice.
fn fetch_keys(part: Part, t0: u32, chunk: u32, lane: u32) -> Piece {
  let quad = chunk * 8u + lane % 8u;
  let row = lane / 8u;
  if (quad >= QUADS) { return Piece(); }
  // Rows past the last hold arbitrary values: each affects only itself and is not stored.
  return Piece(
    quad_of(q[((part.m0 + row) * HEADS + part.head) * QUADS + quad] * SCALE),
    quad_of(q[((part.m0 + row + 16u) * HEADS + part.head) * QUADS + quad] * SCALE),
    kv_quad(part, t0 + row, 0u, quad), kv_quad(part, t0 + row + 16u, 0u, quad));
}

// Four quads of the values from t on: all of the VALUES values over the slice.
fn fetch_values(part: Part, t: u32, lane: u32) -> Piece {
  return Piece(value_quad(part, t, lane), value_quad(part, t, lane + 128u), value_quad(part, t, lane + 256u),
               value_quad(part, t, lane + 384u));
}

// The sums of four rows for a quad of the outputs. Only constants index them, so that they stay in registers.
alias Sums = array<vec4f, 4>;
fn scaled(sums: Sums, by: vec4f) -> Sums { return Sums(sums[0] * by.x, sums[1] * by.y, sums[2] * by.z, sums[3] * by.w); }
fn added(sums: Sums, weight: vec4f, value: vec4f) -> Sums {
  return Sums(sums[0] + weight.x * value, sums[1] + weight.y * value, sums[2] + weight.z * value,
              sums[3] + weight.w * value);
}

// Merges the slices' sums of a chunk of 16 quads and writes them; each slice handles some rows.
fn write_chunk(part: Part, rows: u32, slice: u32, lane: u32, chunk: u32, sums: Sums, total: vec4f) {
  tile[slice][lane] = sums[0];
  tile[slice][lane + 128u] = sums[1];
  tile[slice][lane + 256u] = sums[2];
  tile[slice][lane + 384u] = sums[3];
  workgroupBarrier();
  let quad = part.first_quad + chunk * 16u + lane / 8u;
  for (var i = slice; i < 4u; i += SLICES) {
    let row = lane % 8u + 8u * i;
    var sum = vec4f();
    for (var s = 0u; s < SLICES; s++) { sum += tile[s][lane + 128u * i]; }
    if (row < rows && quad < QUADS) { out[((part.m0 + row) * HEADS + part.head) * QUADS + quad] = sum / total[i]; }
  }
  workgroupBarrier();
}

@compute @workgroup_size(128u * SLICES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m0 = group.y * 32u;
  if (m0 >= state.count) { return; }
  let rows = min(32u, state.count - m0);
  let first = state.rows[m0];
  let last = last_seen(state.rows[m0 + rows - 1u]);
  let part = Part(first.slot, group.x / (HEADS / KV_HEADS), m0, group.x, last, group.z * OUT_QUADS);
  let slice = index / 128u;
  let lane = index % 128u;
  let r = lane % 8u;
  let c = lane / 8u;
  let positions = vec4u(first.position + r) + vec4u(0u, 8u, 16u, 24u);
  var lasts: vec4u;
  for (var i = 0u; i < 4u; i++) { lasts[i] = last_seen(state.rows[m0 + min(r + 8u * i, rows - 1u)]); }
  var largest = vec4f(-1e30);
  var total: vec4f;
  var sums_a: Sums;  // of quad c, then of c + 16, c + 32 and c + 48
  var sums_b: Sums;
  var sums_c: Sums;
  var sums_d: Sums;
  // Tiles begin with the first row's window. Sums before a later row's window are discarded: shrink is 0 at its first
  // key. A slice without a tile in the last round processes keys that no row sees.
  let begin = first_seen(first.position);
  var ahead = fetch_keys(part, begin + 32u * slice, 0u, lane);
  for (var round = begin; round <= last; round += 32u * SLICES) {
    let t0 = round + 32u * slice;
    var score_a = vec4f();  // of key c
    var score_b = vec4f();  // of key c + 16
    for (var chunk = 0u; chunk < KEY_CHUNKS; chunk++) {
      tile[slice][c * STRIDE + r] = floats_of(ahead[0], 0u);
      tile[slice][(c + 16u) * STRIDE + r] = floats_of(ahead[1], 0u);
      tile[slice][(c + 32u) * STRIDE + r] = floats_of(ahead[2], 0u);
      tile[slice][(c + 48u) * STRIDE + r] = floats_of(ahead[3], 0u);
      workgroupBarrier();
      if (chunk + 1u < KEY_CHUNKS) {
        ahead = fetch_keys(part, t0, chunk + 1u, lane);
      } else {
        ahead = fetch_values(part, t0, lane);
      }
      for (var i = 0u; i < 8u; i++) {
        let a = tile[slice][(32u + c) * STRIDE + i];
        let b = tile[slice][(48u + c) * STRIDE + i];
        let q0 = tile[slice][r * STRIDE + i];
        let q1 = tile[slice][(r + 8u) * STRIDE + i];
        let q2 = tile[slice][(r + 16u) * STRIDE + i];
        let q3 = tile[slice][(r + 24u) * STRIDE + i];
        score_a += vec4f(dot(q0, a), dot(q1, a), dot(q2, a), dot(q3, a));
        score_b += vec4f(dot(q0, b), dot(q1, b), dot(q2, b), dot(q3, b));
      }
      workgroupBarrier();
    }
    score_a = select(vec4f(-1e30), capped4(score_a), seen(t0 + c, positions, lasts));
    score_b = select(vec4f(-1e30), capped4(score_b), seen(t0 + c + 16u, positions, lasts));
    by_keys[slice][lane] = max(score_a, score_b);
    workgroupBarrier();
    let before = largest;
    for (var i = 0u; i < 16u; i++) { largest = max(largest, by_keys[slice][i * 8u + r]); }
    let shrink = exp(before - largest);
    let weight_a = exp(score_a - largest);
    let weight_b = exp(score_b - largest);
    total = total * shrink + weight_a + weight_b;
    weights[slice][lane] = weight_a;
    weights[slice][lane + 128u] = weight_b;
    sums_a = scaled(sums_a, shrink);
    sums_b = scaled(sums_b, shrink);
    sums_c = scaled(sums_c, shrink);
    sums_d = scaled(sums_d, shrink);
    for (var from_key = 0u; from_key < 32u; from_key += VALUES) {
      tile[slice][lane] = floats_of(ahead[0], 1u);
      tile[slice][lane + 128u] = floats_of(ahead[1], 1u);
      tile[slice][lane + 256u] = floats_of(ahead[2], 1u);
      tile[slice][lane + 384u] = floats_of(ahead[3], 1u);
      workgroupBarrier();
      if (from_key + VALUES < 32u) {
        ahead = fetch_values(part, t0 + from_key + VALUES, lane);
      } else {
        ahead = fetch_keys(part, t0 + 32u * SLICES, 0u, lane);
      }
      for (var key = 0u; key < VALUES; key++) {
        let weight = weights[slice][(from_key + key) * 8u + r];
        sums_a = added(sums_a, weight, tile[slice][key * WIDTH + c]);
        if (VALUE_CHUNKS > 1u) { sums_b = added(sums_b, weight, tile[slice][key * WIDTH + 16u + c]); }
        if (VALUE_CHUNKS > 2u) { sums_c = added(sums_c, weight, tile[slice][key * WIDTH + 32u + c]); }
        if (VALUE_CHUNKS > 3u) { sums_d = added(sums_d, weight, tile[slice][key * WIDTH + 48u + c]); }
      }
      workgroupBarrier();
    }
  }
  if (SLICES > 1u) {
    by_keys[slice][lane] = largest;
    workgroupBarrier();
    var most = largest;
    for (var s = 0u; s < SLICES; s++) { most = max(most, by_keys[s][lane]); }
    // 0 for a slice that saw no key of a row.
    let share = exp(largest - most);
    total *= share;
    sums_a = scaled(sums_a, share);
    sums_b = scaled(sums_b, share);
    sums_c = scaled(sums_c, share);
    sums_d = scaled(sums_d, share);
    workgroupBarrier();
  }
  by_keys[slice][lane] = total;
  workgroupBarrier();
  total = vec4f();
  for (var s = 0u; s < SLICES; s++) {
    for (var i = 0u; i < 16u; i++) { total += by_keys[s][i * 8u + r]; }
  }
  write_chunk(part, rows, slice, lane, 0u, sums_a, total);
  if (VALUE_CHUNKS > 1u) { write_chunk(part, rows, slice, lane, 1u, sums_b, total); }
  if (VALUE_CHUNKS > 2u) { write_chunk(part, rows, slice, lane, 2u, sums_c, total); }
  if (VALUE_CHUNKS > 3u) { write_chunk(part, rows, slice, lane, 3u, sums_d, total); }
}
