// Merges attention_split's results for splits s of SPLIT positions, from the first to the last that a row sees:
// out[m, h, :] = sum_s exp(largest[s] - max) values[s] / sum_s exp(largest[s] - max) total[s],
// where max = max_s largest[s].
// Bindings: 0 state; 1 partials: (count, HEADS, splits of all pages, HEAD_DIM / 4 + 1) vec4f, (largest, total) last;
//           2 out: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f.
// `lora_next`: an adapter's output for the linear that reads `out`.
// Constants: HEADS, HEAD_DIM, PAGE, MAX_PAGES, SPLIT, those of scores.wgsl, WORKGROUP (at least HEAD_DIM / 4). Dispatch
// (HEADS, count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> partials: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4f>;
#import scores
#import lora_next

const QUADS = HEAD_DIM / 4u;
const MAX_SPLITS = (MAX_PAGES * PAGE + SPLIT - 1u) / SPLIT;
const PARTS = WORKGROUP / QUADS;

var<workgroup> largests: array<f32, MAX_SPLITS>;
var<workgroup> totals: array<f32, MAX_SPLITS>;
var<workgroup> weights: array<f32, MAX_SPLITS>;
var<workgroup> sums: array<vec4f, PARTS * QUADS>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m = group.y;
  if (m >= state.count) { return; }
  let next_ahead = next_columns(group.x * HEAD_DIM, index);
  let row = state.rows[m];
  let splits = last_seen(row) / SPLIT + 1u;
  let before = first_seen(row.position) / SPLIT;  // splits entirely before the window
  let head = m * HEADS + group.x;
  let first = head * MAX_SPLITS * (QUADS + 1u);
  for (var s = before + index; s < splits; s += WORKGROUP) {
    let partial = partials[first + s * (QUADS + 1u) + QUADS];
    largests[s] = partial.x;
    totals[s] = partial.y;
  }
  workgroupBarrier();
  var largest = -1e30;
  for (var s = before; s < splits; s++) { largest = max(largest, largests[s]); }
  for (var s = before + index; s < splits; s += WORKGROUP) { weights[s] = exp(largests[s] - largest); }
  workgroupBarrier();
  let part = index / QUADS;
  if (part < PARTS) {
    var sum: vec4f;
    for (var s = before + part; s < splits; s += PARTS) {
      sum += weights[s] * partials[first + s * (QUADS + 1u) + index % QUADS];
    }
    sums[index] = sum;
  }
  workgroupBarrier();
  if (index < QUADS) {
    var total = 0.0;
    for (var s = before; s < splits; s++) { total += weights[s] * totals[s]; }
    var value: vec4f;
    for (var p = 0u; p < PARTS; p++) { value += sums[p * QUADS + index]; }
    out[head * QUADS + index] = value / total;
    if (NEXT) { for (var i = 0u; i < 4u; i++) { next_value(4u * index + i, value[i] / total); } }
  }
  if (NEXT) { next_part(group.x, next_ahead, index); }
}
