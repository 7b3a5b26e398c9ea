// out[m, h, :] = softmax_t(cap(SCALE q[m, h] . k[t, g])) v[t, g],
// t = first_seen[m] .. last_seen[m], g = h * KV_HEADS / HEADS
// For software adapters, over hot pages only: one invocation handles all tokens, with an online softmax (arXiv
// 1805.02867) and no barriers.
// lavapipe silently ends all loops of an invocation after 65,535 iterations. So the loops over a head's quads must be
// short enough for its compiler to unroll, which they are up to HEAD_DIM = 128
// (tests/backends/webgpu/test_attention_kernels.py).
// Bindings: 0 state; 1 q: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 page_table; 3 kv: the layer's pages;
//           4 out: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f.
// Constants: HEADS, KV_HEADS, HEAD_DIM (a multiple of 8), PAGE, MAX_PAGES, SCALE, WORKGROUP, those of scores.wgsl.
// Dispatch (ceil(HEADS / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> page_table: array<u32>;
@group(0) @binding(3) var<storage, read> kv: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4f>;
#import kv_pages
#import scores

const QUADS = HEAD_DIM / 4u;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let head = id.x;
  let m = id.y;
  if (m >= state.count || head >= HEADS) { return; }
  let row = state.rows[m];
  let kv_head = head / (HEADS / KV_HEADS);
  let q_at = (m * HEADS + head) * QUADS;
  var query: array<vec4f, QUADS>;
  var values: array<vec4f, QUADS>;
  var largest = -1e30;
  var total = 0.0;
  for (var i = 0u; i < QUADS; i++) { query[i] = q[q_at + i] * SCALE; }
  for (var t = first_seen(row.position); t <= last_seen(row); t++) {
    let key = kv_index(row.slot, t, kv_head, 0u);
    let value = kv_index(row.slot, t, kv_head, 1u);
    var score = 0.0;
    for (var i = 0u; i < QUADS; i += 2u) { score += dot(query[i], kv[key + i]) + dot(query[i + 1u], kv[key + i + 1u]); }
    score = capped(score);
    let before = largest;
    largest = max(largest, score);
    let shrink = exp(before - largest);
    let weight = exp(score - largest);
    total = total * shrink + weight;
    for (var i = 0u; i < QUADS; i += 2u) {
      values[i] = values[i] * shrink + weight * kv[value + i];
      values[i + 1u] = values[i + 1u] * shrink + weight * kv[value + i + 1u];
    }
  }
  for (var i = 0u; i < QUADS; i++) { out[q_at + i] = values[i] / total; }
}
