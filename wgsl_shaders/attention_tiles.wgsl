// out[m, h, :] = softmax_t(cap(SCALE q[m, h] . k[t, g])) v[t, g], t = first_seen .. position[m], g = h * KV_HEADS / HEADS
// For many rows, all of one sequence and at consecutive positions (flash attention, arXiv 2205.14135): a workgroup
// takes 32 rows of a head and goes over tiles of 32 keys in workgroup memory with an online softmax. Each of its 128
// invocations computes, for four rows, the scores of two keys and every 16th quad of the outputs. A vec4f over rows
// holds rows r, r + 8, r + 16, r + 24.
// Bindings: 0 state; 1 q: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 page_table; 3 kv: the layer's pages;
//           4 out: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f.
// Constants: HEADS, KV_HEADS, HEAD_DIM, PAGE, MAX_PAGES, SCALE, those of scores.wgsl. Dispatch (HEADS, ceil(count / 32)).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> page_table: array<u32>;
@group(0) @binding(3) var<storage, read> kv: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4f>;
#import kv_pages
#import scores

const QUADS = HEAD_DIM / 4u;
const KEY_CHUNKS = (QUADS + 7u) / 8u;
const VALUE_CHUNKS = (QUADS + 15u) / 16u;
const STRIDE = 9u;  // quads from one row of 8 to the next: neighbouring rows lie in different banks

var<workgroup> tile: array<vec4f, 576>;     // q [row 32][STRIDE] and k [key 32][STRIDE]; v [key 32][quad 16]
var<workgroup> weights: array<vec4f, 256>;  // [key 32][rows 8]
var<workgroup> by_keys: array<vec4f, 128>;  // [key pair 16][rows 8]: the larger score of each pair, at the end sums

// Whether a key at t is seen from the positions.
fn seen(t: u32, positions: vec4u) -> vec4<bool> {
  if (WINDOW == 0u) { return vec4u(t) <= positions; }
  return (vec4u(t) <= positions) & (vec4u(t + WINDOW) > positions);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let head = group.x;
  let m0 = group.y * 32u;
  if (m0 >= state.count) { return; }
  let rows = min(32u, state.count - m0);
  let first = state.rows[m0];
  let last = first.position + rows - 1u;
  let kv_head = head / (HEADS / KV_HEADS);
  let r = index % 8u;
  let c = index / 8u;
  let positions = vec4u(first.position + r) + vec4u(0u, 8u, 16u, 24u);
  var largest = vec4f(-1e30);
  var total: vec4f;
  var sums: array<array<vec4f, 4>, VALUE_CHUNKS>;
  // Tiles begin with the first row's window. What comes before a later row's is forgotten: shrink is 0 with its first key.
  for (var t0 = first_seen(first.position); t0 <= last; t0 += 32u) {
    var score_a = vec4f();  // of key c
    var score_b = vec4f();  // of key c + 16
    for (var chunk = 0u; chunk < KEY_CHUNKS; chunk++) {
      for (var i = index; i < 256u; i += 128u) {
        let row = i / 8u;
        let quad = chunk * 8u + i % 8u;
        var query = vec4f();
        var key = vec4f();
        if (quad < QUADS) {
          // Rows past the last hold arbitrary values: each affects only itself, and is not written.
          query = q[((m0 + row) * HEADS + head) * QUADS + quad] * SCALE;
          if (t0 + row <= last) { key = kv[kv_index(first.slot, t0 + row, kv_head, 0u) + quad]; }
        }
        tile[row * STRIDE + i % 8u] = query;
        tile[(32u + row) * STRIDE + i % 8u] = key;
      }
      workgroupBarrier();
      for (var i = 0u; i < 8u; i++) {
        let a = tile[(32u + c) * STRIDE + i];
        let b = tile[(48u + c) * STRIDE + i];
        let q0 = tile[r * STRIDE + i];
        let q1 = tile[(r + 8u) * STRIDE + i];
        let q2 = tile[(r + 16u) * STRIDE + i];
        let q3 = tile[(r + 24u) * STRIDE + i];
        score_a += vec4f(dot(q0, a), dot(q1, a), dot(q2, a), dot(q3, a));
        score_b += vec4f(dot(q0, b), dot(q1, b), dot(q2, b), dot(q3, b));
      }
      workgroupBarrier();
    }
    score_a = select(vec4f(-1e30), capped4(score_a), seen(t0 + c, positions));
    score_b = select(vec4f(-1e30), capped4(score_b), seen(t0 + c + 16u, positions));
    by_keys[index] = max(score_a, score_b);
    workgroupBarrier();
    let before = largest;
    for (var i = 0u; i < 16u; i++) { largest = max(largest, by_keys[i * 8u + r]); }
    let shrink = exp(before - largest);
    let weight_a = exp(score_a - largest);
    let weight_b = exp(score_b - largest);
    total = total * shrink + weight_a + weight_b;
    weights[index] = weight_a;
    weights[index + 128u] = weight_b;
    for (var chunk = 0u; chunk < VALUE_CHUNKS; chunk++) {
      for (var i = index; i < 512u; i += 128u) {
        let t = t0 + i / 16u;
        let quad = chunk * 16u + i % 16u;
        var value = vec4f();
        if (quad < QUADS && t <= last) { value = kv[kv_index(first.slot, t, kv_head, 1u) + quad]; }
        tile[i] = value;
      }
      workgroupBarrier();
      for (var i = 0u; i < 4u; i++) { sums[chunk][i] *= shrink[i]; }
      for (var t = 0u; t < 32u; t++) {
        let weight = weights[t * 8u + r];
        let value = tile[t * 16u + c];
        sums[chunk][0] += weight.x * value;
        sums[chunk][1] += weight.y * value;
        sums[chunk][2] += weight.z * value;
        sums[chunk][3] += weight.w * value;
      }
      workgroupBarrier();
    }
  }
  by_keys[index] = total;
  workgroupBarrier();
  total = vec4f();
  for (var i = 0u; i < 16u; i++) { total += by_keys[i * 8u + r]; }
  for (var chunk = 0u; chunk < VALUE_CHUNKS; chunk++) {
    let quad = chunk * 16u + c;
    for (var i = 0u; i < 4u; i++) {
      let row = r + 8u * i;
      if (row < rows && quad < QUADS) { out[((m0 + row) * HEADS + head) * QUADS + quad] = sums[chunk][i] / total[i]; }
    }
  }
}
