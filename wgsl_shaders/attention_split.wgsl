// Attention for few rows (flash decoding): a workgroup takes SPLIT positions of one kv head for HEADS_EACH query heads.
// DIRECT: they are all there are, and out[m, h, :] = softmax_t(q[m, h] . k[t, g] / sqrt(HEAD_DIM)) v[t, g], g the kv head.
// Otherwise out[m, h, split] = sum_t exp(score[t] - largest) v[t], then a vec4f (largest, sum_t exp(score[t] - largest)):
// attention_merge combines them.
// Bindings: 0 state; 1 q: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 page_table; 3 kv: the layer's pages;
//           4 out: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f, or (count, HEADS, splits of all pages, HEAD_DIM / 4 + 1) vec4f.
// Constants: HEADS, KV_HEADS, HEAD_DIM, PAGE, MAX_PAGES, SPLIT, HEADS_EACH (at most WORKGROUP / 32), DIRECT,
// WORKGROUP (at least HEAD_DIM / 4).
// Dispatch (splits, KV_HEADS * ceil(HEADS / KV_HEADS / HEADS_EACH), count); splits beyond a row's position do nothing.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> page_table: array<u32>;
@group(0) @binding(3) var<storage, read> kv: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4f>;
#import kv_pages

const QUADS = HEAD_DIM / 4u;
const GROUP = HEADS / KV_HEADS;
const CHUNKS = (GROUP + HEADS_EACH - 1u) / HEADS_EACH;
const MAX_SPLITS = (MAX_PAGES * PAGE + SPLIT - 1u) / SPLIT;
const LANES = 4u;                 // share a key: 64 neighbouring bytes at a time
const TEAM = 32u;                 // share a head's softmax
const PARTS = WORKGROUP / QUADS;  // positions whose values are read at a time

var<workgroup> queries: array<vec4f, HEADS_EACH * QUADS>;
var<workgroup> scores: array<f32, HEADS_EACH * SPLIT * LANES>;  // [head][position][lane], then the weight in lane 0
var<workgroup> maxima: array<f32, HEADS_EACH * TEAM>;
var<workgroup> totals: array<f32, HEADS_EACH * TEAM>;
var<workgroup> sums: array<vec4f, HEADS_EACH * PARTS * QUADS>;

fn largest_of(h: u32) -> f32 {
  var largest = -1e30;
  for (var i = 0u; i < TEAM; i++) { largest = max(largest, maxima[h * TEAM + i]); }
  return largest;
}

fn total_of(h: u32) -> f32 {
  var total = 0.0;
  for (var i = 0u; i < TEAM; i++) { total += totals[h * TEAM + i]; }
  return total;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m = group.z;
  if (m >= state.count) { return; }
  let row = state.rows[m];
  let first = group.x * SPLIT;
  if (first > row.position) { return; }
  let count = min(SPLIT, row.position + 1u - first);
  let kv_head = group.y / CHUNKS;
  let first_head = kv_head * GROUP + group.y % CHUNKS * HEADS_EACH;
  for (var i = index; i < HEADS_EACH * QUADS; i += WORKGROUP) {
    let head = min(first_head + i / QUADS, HEADS - 1u);
    queries[i] = q[(m * HEADS + head) * QUADS + i % QUADS] * inverseSqrt(f32(HEAD_DIM));
  }
  workgroupBarrier();

  for (var t = index / LANES; t < count; t += WORKGROUP / LANES) {
    let key = kv_index(row.slot, first + t, kv_head, 0u);
    var dots = array<f32, HEADS_EACH>();
    for (var i = 0u; i < QUADS; i += LANES) {
      let quad = i + index % LANES;
      if (QUADS % LANES == 0u || quad < QUADS) {
        let k = kv[key + quad];
        for (var h = 0u; h < HEADS_EACH; h++) { dots[h] += dot(queries[h * QUADS + quad], k); }
      }
    }
    for (var h = 0u; h < HEADS_EACH; h++) { scores[(h * SPLIT + t) * LANES + index % LANES] = dots[h]; }
  }
  workgroupBarrier();

  let h = index / TEAM;
  var largest = -1e30;
  if (h < HEADS_EACH) {
    for (var t = index % TEAM; t < count; t += TEAM) {
      let at = (h * SPLIT + t) * LANES;
      let score = scores[at] + scores[at + 1u] + scores[at + 2u] + scores[at + 3u];
      scores[at] = score;
      largest = max(largest, score);
    }
    maxima[index] = largest;
  }
  workgroupBarrier();
  if (h < HEADS_EACH) {
    largest = largest_of(h);
    var total = 0.0;
    for (var t = index % TEAM; t < count; t += TEAM) {
      let at = (h * SPLIT + t) * LANES;
      let weight = exp(scores[at] - largest);
      scores[at] = weight;
      total += weight;
    }
    totals[index] = total;
  }
  workgroupBarrier();

  let part = index / QUADS;
  if (part < PARTS) {
    var sum = array<vec4f, HEADS_EACH>();
    for (var t = part; t < count; t += 4u * PARTS) {
      // A fixed number of reads can be under way together: those past the end read the last position again, for nothing.
      for (var i = 0u; i < 4u; i++) {
        let inside = t + i * PARTS < count;
        let at = min(t + i * PARTS, count - 1u);
        let value = kv[kv_index(row.slot, first + at, kv_head, 1u) + index % QUADS];
        for (var j = 0u; j < HEADS_EACH; j++) {
          sum[j] += select(0.0, scores[(j * SPLIT + at) * LANES], inside) * value;
        }
      }
    }
    for (var j = 0u; j < HEADS_EACH; j++) { sums[(j * PARTS + part) * QUADS + index % QUADS] = sum[j]; }
  }
  workgroupBarrier();

  let heads = min(HEADS_EACH, (kv_head + 1u) * GROUP - first_head);
  for (var i = index; i < heads * QUADS; i += WORKGROUP) {
    let j = i / QUADS;
    let quad = i % QUADS;
    var value = vec4f();
    for (var p = 0u; p < PARTS; p++) { value += sums[(j * PARTS + p) * QUADS + quad]; }
    let head = m * HEADS + first_head + j;
    if (DIRECT) {
      out[head * QUADS + quad] = value / total_of(j);
    } else {
      let at = (head * MAX_SPLITS + group.x) * (QUADS + 1u);
      out[at + quad] = value;
      if (quad == 0u) { out[at + QUADS] = vec4f(largest_of(j), total_of(j), 0.0, 0.0); }
    }
  }
}
