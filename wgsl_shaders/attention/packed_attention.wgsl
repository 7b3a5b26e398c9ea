// out[m, h] = softmax_t(cap(SCALE q[m, h] . k[t, g])) v[t, g] over the rows t of a pack that m sees, g = h * KV_HEADS /
// HEADS; and the logarithms of the sums of exp(cap(..)).
// A workgroup handles 32 rows of a head and iterates over tiles of 32 keys with an online softmax (flash attention,
// arXiv 2205.14135); it computes 64 columns of the output.
// Bindings: 0 pack; 1 q: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 k and 3 v: (MAX_ROWS, KV_HEADS * HEAD_DIM / 4)
//           vec4f; 4 out: as q; 5 log_sums: (MAX_ROWS, HEADS).
// Constants: HEADS, KV_HEADS, HEAD_DIM, SCALE, those of scores.wgsl. Dispatch (HEADS, ceil(count / 32), ceil(HEAD_DIM /
// 64)).
#import pack
@group(0) @binding(0) var<storage, read> pack: Pack;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> k: array<vec4f>;
@group(0) @binding(3) var<storage, read> v: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> log_sums: array<f32>;
#import attention_pairs
#import pack_sight
#import pack_keys
#import scores

var<workgroup> largest_of: array<vec4f, 128>;  // [key pair 16][rows 8]: the larger score of each pair, at the end sums

fn own_quad(which: u32, row: u32, quad: u32) -> vec4f {
  if (row >= pack.count) { return vec4f(); }
  return q[(row * HEADS + head) * QUADS + quad];
}
fn seen_scores(scores: vec4f, row: u32, key: u32) -> vec4f {
  return select(vec4f(-1e30), capped4(SCALE * scores), seen_by(row, key));
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m0 = group.y * 32u;
  if (m0 >= pack.count) { return; }
  head = group.x;
  let r = index % 8u;
  let c = index / 8u;
  let end = min(m0 + 32u, pack.count);
  let first = group.z * 16u;
  var largest = vec4f(-1e30);
  var total = vec4f();
  var sums = Sums();
  // Sums before a row's first key are discarded: shrink is 0 there.
  for (var t0 = 0u; t0 < end; t0 += 32u) {
    if (!may_see(m0, t0)) { continue; }
    let products = dots(0u, m0, t0, index);
    let low = seen_scores(products.low, m0 + r, t0 + c);
    let high = seen_scores(products.high, m0 + r, t0 + c + 16u);
    largest_of[index] = max(low, high);
    workgroupBarrier();
    let before = largest;
    for (var i = 0u; i < 16u; i++) { largest = max(largest, largest_of[i * 8u + r]); }
    let shrink = exp(before - largest);
    let weights = Pair(exp(low - largest), exp(high - largest));
    total = total * shrink + weights.low + weights.high;
    sums = weighted(scaled(sums, shrink), 1u, t0, first, weights, index);
  }
  workgroupBarrier();
  largest_of[index] = total;
  workgroupBarrier();
  total = vec4f();
  for (var i = 0u; i < 16u; i++) { total += largest_of[i * 8u + r]; }
  for (var i = 0u; i < 4u; i++) {
    let row = m0 + r + 8u * i;
    if (row >= end) { continue; }
    if (first + c < QUADS) { out[(row * HEADS + head) * QUADS + first + c] = sums[i] / total[i]; }
    if (first + c == 0u) { log_sums[row * HEADS + head] = largest[i] + log(total[i]); }
  }
}
