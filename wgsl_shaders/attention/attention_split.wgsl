// Attention for few rows (flash decoding): a workgroup handles SPLIT positions of one kv head for HEADS_EACH query
// heads.
// DIRECT: there are no other positions; out[m, h, :] = softmax_t(cap(SCALE q[m, h] . k[t, g])) v[t, g], kv
// head g.
// Otherwise out[m, h, split] = sum_t exp(score[t] - largest) v[t], then a vec4f (largest, sum_t exp(score[t] -
// largest)): attention_merge combines them.
// Bindings: 0 state; 1 q: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 page_table; 3 kv: the layer's pages;
//           4 out: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f, or (count, HEADS, splits of all pages, HEAD_DIM / 4 + 1)
//           vec4f; with pages of all tiers 5 demoted: the layer's demoted pages.
// Constants: HEADS, KV_HEADS, HEAD_DIM, PAGE, MAX_PAGES, SCALE, those of scores.wgsl, SPLIT, HEADS_EACH, DIRECT,
// WORKGROUP (at least HEAD_DIM / 4); LANES (a power of two): invocations of a lane group, which reads a position
// together; SINGLE_ROW: the state has one row.
// `q_binding`: reads the queries, and the newest key and value if they are in no page yet.
// `kv_quads`: reads the pages, of one tier or all. `lora_next`: an adapter's output for the linear that reads `out`,
// with DIRECT and one head per workgroup.
// Dispatch (splits, KV_HEADS * ceil(HEADS / KV_HEADS / HEADS_EACH), count); splits beyond what a row sees do nothing.
#import state
@group(0) @binding(0) var<storage, read> state: State;
#import q_binding
@group(0) @binding(2) var<storage, read> page_table: array<u32>;
@group(0) @binding(3) var<storage, read> kv: array<vec4f>;
#import out_binding
#import kv_pages
#import kv_quads
#import scores
#import reduce
#import lora_next

const QUADS = HEAD_DIM / 4u;
const QUADS_PER_LANE = (QUADS + LANES - 1u) / LANES;  // quads of an invocation: lane, lane + LANES ...
const GROUP = HEADS / KV_HEADS;
const CHUNKS = (GROUP + HEADS_EACH - 1u) / HEADS_EACH;
const MAX_SPLITS = (MAX_PAGES * PAGE + SPLIT - 1u) / SPLIT;
const LANE_GROUPS = WORKGROUP / LANES;
const PARTS = WORKGROUP / QUADS;  // parts in which the lane groups' sums are added up

var<workgroup> largests: array<f32, HEADS_EACH * LANE_GROUPS>;
var<workgroup> totals: array<f32, HEADS_EACH * LANE_GROUPS>;
var<workgroup> group_sums: array<vec4f, LANE_GROUPS * QUADS>;
var<workgroup> part_sums: array<vec4f, PARTS * QUADS>;
var<workgroup> part_totals: array<f32, PARTS>;

// The pages of t and of the lane group's next three positions.
fn pages_from(slot: u32, t: u32, end: u32) -> vec4u {
  let last = end - 1u;
  return vec4u(page_of(slot, min(t, last)), page_of(slot, min(t + LANE_GROUPS, last)),
               page_of(slot, min(t + 2u * LANE_GROUPS, last)), page_of(slot, min(t + 3u * LANE_GROUPS, last)));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m = group.z;
  if (!SINGLE_ROW && m >= state.count) { return; }
  let row = state.rows[m];
  let first = max(group.x * SPLIT, first_seen(row.position));
  let end = min(group.x * SPLIT + SPLIT, last_seen(row) + 1u);
  if (first >= end) { return; }
  let kv_head = group.y / CHUNKS;
  let first_head = kv_head * GROUP + group.y % CHUNKS * HEADS_EACH;
  let lane_group = index / LANES;
  let lane = index % LANES;
  let next_ahead = next_columns(first_head * HEAD_DIM, index);
  // Pages are looked up ahead: otherwise every read of keys would wait for a read of the page table.
  var pages = pages_from(row.slot, first + lane_group, end);
  arrive(row.slot, row.position, first_head, kv_head, group.y % CHUNKS == 0u, index);
  var queries: array<array<vec4f, QUADS_PER_LANE>, HEADS_EACH>;
  for (var h = 0u; h < HEADS_EACH; h++) {
    for (var i = 0u; i < QUADS_PER_LANE; i++) {
      let quad = i * LANES + lane;
      queries[h][i] = q_quad((m * HEADS + min(first_head + h, HEADS - 1u)) * QUADS + min(quad, QUADS - 1u));
      queries[h][i] *= select(0.0, SCALE, quad < QUADS);
    }
  }

  // Each lane group handles four positions at a time with its own online softmax.
  var largest: array<f32, HEADS_EACH>;
  var total: array<f32, HEADS_EACH>;
  var sums: array<array<vec4f, QUADS_PER_LANE>, HEADS_EACH>;
  for (var h = 0u; h < HEADS_EACH; h++) { largest[h] = -1e30; }
  for (var t0 = first; t0 < end; t0 += 4u * LANE_GROUPS) {
    var read_keys: array<array<Quad, QUADS_PER_LANE>, 4>;
    var read_values: array<array<Quad, QUADS_PER_LANE>, 4>;
    for (var j = 0u; j < 4u; j++) {
      let t = min(t0 + j * LANE_GROUPS + lane_group, end - 1u);
      for (var i = 0u; i < QUADS_PER_LANE; i++) {
        let quad = min(i * LANES + lane, QUADS - 1u);
        read_keys[j][i] = read_quad(pages[j], t, kv_head, 0u, quad);
        read_values[j][i] = read_quad(pages[j], t, kv_head, 1u, quad);
      }
    }
    if (t0 + 4u * LANE_GROUPS < end) { pages = pages_from(row.slot, t0 + 4u * LANE_GROUPS + lane_group, end); }
    var keys: array<array<vec4f, QUADS_PER_LANE>, 4>;
    var values: array<array<vec4f, QUADS_PER_LANE>, 4>;
    for (var j = 0u; j < 4u; j++) {
      let is_newest = min(t0 + j * LANE_GROUPS + lane_group, end - 1u) == row.position;
      for (var i = 0u; i < QUADS_PER_LANE; i++) {
        let quad = min(i * LANES + lane, QUADS - 1u);
        keys[j][i] = newest_or(floats_of(read_keys[j][i], 0u), is_newest, 0u, quad);
        values[j][i] = newest_or(floats_of(read_values[j][i], 1u), is_newest, 1u, quad);
      }
    }
    let inside = vec4u(t0 + lane_group) + vec4u(0u, LANE_GROUPS, 2u * LANE_GROUPS, 3u * LANE_GROUPS) < vec4u(end);
    for (var h = 0u; h < HEADS_EACH; h++) {
      var dots = vec4f();
      for (var i = 0u; i < QUADS_PER_LANE; i++) {
        let query = queries[h][i];
        dots += vec4f(dot(query, keys[0][i]), dot(query, keys[1][i]), dot(query, keys[2][i]), dot(query, keys[3][i]));
      }
      let scores = select(vec4f(-1e30), capped4(reduce_lanes4(dots, index)), inside);
      let before = largest[h];
      largest[h] = max(before, max(max(scores.x, scores.y), max(scores.z, scores.w)));
      let shrink = exp(before - largest[h]);
      let weights = select(vec4f(0.0), exp(scores - largest[h]), inside);
      total[h] = total[h] * shrink + dot(weights, vec4f(1.0));
      for (var i = 0u; i < QUADS_PER_LANE; i++) {
        sums[h][i] = sums[h][i] * shrink + weights.x * values[0][i] + weights.y * values[1][i]
          + weights.z * values[2][i] + weights.w * values[3][i];
      }
    }
  }

  // The results of the lane groups are summed head by head.
  for (var h = 0u; h < HEADS_EACH; h++) {
    if (lane == 0u) {
      largests[h * LANE_GROUPS + lane_group] = largest[h];
      totals[h * LANE_GROUPS + lane_group] = total[h];
    }
  }
  let part = index / QUADS;
  for (var h = 0u; h < HEADS_EACH; h++) {
    for (var i = 0u; i < QUADS_PER_LANE; i++) {
      if (i * LANES + lane < QUADS) { group_sums[lane_group * QUADS + i * LANES + lane] = sums[h][i]; }
    }
    workgroupBarrier();
    var most = -1e30;
    for (var t = 0u; t < LANE_GROUPS; t++) { most = max(most, largests[h * LANE_GROUPS + t]); }
    if (part < PARTS) {
      var sum = vec4f();
      var weight_sum = 0.0;
      for (var t = part; t < LANE_GROUPS; t += PARTS) {
        let weight = exp(largests[h * LANE_GROUPS + t] - most);
        sum += weight * group_sums[t * QUADS + index % QUADS];
        weight_sum += weight * totals[h * LANE_GROUPS + t];
      }
      part_sums[index] = sum;
      part_totals[part] = weight_sum;
    }
    workgroupBarrier();
    if (index < QUADS && first_head + h < (kv_head + 1u) * GROUP) {
      var sum = vec4f();
      var weight_sum = 0.0;
      for (var p = 0u; p < PARTS; p++) {
        sum += part_sums[p * QUADS + index];
        weight_sum += part_totals[p];
      }
      let head = m * HEADS + first_head + h;
      if (DIRECT) {
        store_out(head * QUADS + index, sum / weight_sum);
        if (NEXT) { for (var i = 0u; i < 4u; i++) { next_value(4u * index + i, sum[i] / weight_sum); } }
      } else {
        let at = (head * MAX_SPLITS + group.x) * (QUADS + 1u);
        store_out(at + index, sum);
        if (index == 0u) { store_out(at + QUADS, vec4f(most, weight_sum, 0.0, 0.0)); }
      }
    }
  }
  if (NEXT) { next_part(first_head, next_ahead, index); }
}
