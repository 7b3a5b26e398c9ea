// Adds a chunk of the vocabulary to the sums of each row with a loss: the softmax of arXiv 1805.02867, piece by piece.
// Bindings: 0 state: the chunk; 1 rows: LossRow of each; 2 logits and 3 base_logits: (MAX_ROWS, CHUNK), any buffer
//           without KL; 4 vectors: from BIAS_AT on the biases of all tokens, any buffer without ADD_BIAS; 5 sums:
//           LossSums of each row.
// Constants: CHUNK, WORKGROUP (a power of two); those of loss_rows.wgsl. One workgroup per row: dispatch (count).
#import chunk_state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> rows: array<LossRow>;
@group(0) @binding(2) var<storage, read> logits: array<f32>;
@group(0) @binding(3) var<storage, read> base_logits: array<f32>;
@group(0) @binding(4) var<storage, read> vectors: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> sums: array<LossSums>;
#import loss_rows
#import reduce_workgroup

const LANES = WORKGROUP;
var<workgroup> largest_of: array<vec2f, WORKGROUP>;

// The largest of all invocations' values.
fn most(value: vec2f, index: u32) -> vec2f {
  largest_of[index] = value;
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (index < half) { largest_of[index] = max(largest_of[index], largest_of[index + half]); }
  }
  workgroupBarrier();
  return largest_of[0];
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let row = group.x;
  if (row >= state.count) { return; }
  var here = vec2f(-1e30);
  for (var i = index; i < state.size; i += WORKGROUP) {
    here.x = max(here.x, logit_of(logits[row * CHUNK + i], i));
    if (KL) { here.y = max(here.y, logit_of(base_logits[row * CHUNK + i], i)); }
  }
  let largest = most(here, index);
  var own = vec4f();
  for (var i = index; i < state.size; i += WORKGROUP) {
    let logit = logit_of(logits[row * CHUNK + i], i);
    own.x += exp(logit - largest.x);
    if (KL) {
      let base = logit_of(base_logits[row * CHUNK + i], i);
      let share = exp(base - largest.y);
      own.y += share;
      own.z += share * (base - logit);
    }
  }
  let found = reduce_lanes4(own, index);
  if (index != 0u) { return; }
  var before = sums[row];
  if (state.first_token == 0u) { before = LossSums(-1e30, 0.0, -1e30, 0.0, 0.0, 0.0, 0.0, 0.0); }
  let all = max(vec2f(before.largest, before.base_largest), largest);
  let old = exp(vec2f(before.largest, before.base_largest) - all);
  let new_share = exp(largest - all);
  let target_column = rows[row].target_token - state.first_token;  // wraps to a large number if the target comes before
  var at_target = before.at_target;
  if (target_column < state.size) { at_target = logit_of(logits[row * CHUNK + target_column], target_column); }
  sums[row] = LossSums(
    all.x, before.total * old.x + found.x * new_share.x, all.y, before.base_total * old.y + found.y * new_share.y, at_target,
    before.difference * old.y + found.z * new_share.y, 0.0, 0.0);
}
