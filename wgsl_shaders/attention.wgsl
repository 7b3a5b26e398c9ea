// out[m, h, :] = softmax_t(q[m, h] . k[t, g] / sqrt(HEAD_DIM)) v[t, g], t = 0 .. position[m], g = h * KV_HEADS / HEADS
// The softmax is online (arXiv 1805.02867): each lane walks every LANES-th token with its own maximum, sum and output;
// the lanes are merged at the end.
// Bindings: 0 state; 1 q: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 page_table; 3 kv: the layer's pages;
//           4 out: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f.
// Constants: HEADS, KV_HEADS, HEAD_DIM, PAGE, MAX_PAGES, LANES (a power of two), WORKGROUP = LANES * heads a workgroup.
// Dispatch (ceil(HEADS / (WORKGROUP / LANES)), count).
#import state
#import kv
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> page_table: array<u32>;
@group(0) @binding(3) var<storage, read> kv: array<KV>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4f>;
#import kv_pages
#import merge_lanes

const QUADS = HEAD_DIM / 4u;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m = group.y;
  if (m >= state.count) { return; }
  let lane = index % LANES;
  let head = group.x * (WORKGROUP / LANES) + index / LANES;
  let row = state.rows[m];
  let kv_head = min(head, HEADS - 1u) / (HEADS / KV_HEADS);
  let q_at = (m * HEADS + min(head, HEADS - 1u)) * QUADS;
  var query: array<vec4f, QUADS>;
  var sum: Partial;
  sum.largest = -1e30;
  for (var i = 0u; i < QUADS; i++) { query[i] = q[q_at + i] * inverseSqrt(f32(HEAD_DIM)); }
  for (var t = lane; t <= row.position; t += LANES) {
    let key = kv_index(row.slot, t, kv_head, 0u);
    let value = kv_index(row.slot, t, kv_head, 1u);
    var score = 0.0;
    for (var i = 0u; i < QUADS; i++) { score += dot(query[i], kv_unpack(kv[key + i])); }
    let largest = max(sum.largest, score);
    let shrink = exp(sum.largest - largest);
    let weight = exp(score - largest);
    sum.largest = largest;
    sum.total = sum.total * shrink + weight;
    for (var i = 0u; i < QUADS; i++) { sum.values[i] = sum.values[i] * shrink + weight * kv_unpack(kv[value + i]); }
  }
  merge_lanes(&sum, index, lane);
  if (head < HEADS && lane == 0u) {
    for (var i = 0u; i < QUADS; i++) { out[q_at + i] = sum.values[i] / sum.total; }
  }
}
