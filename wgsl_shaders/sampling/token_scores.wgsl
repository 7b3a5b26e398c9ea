// log p of each row's token, from logits that its neighbours change as in head_mix.wgsl.
// Bindings: 0 state: a row's token is the one to score, its slot the place of the score; 1 slots and 2 near as in
//           head_slots.wgsl; 3 logits: (rows, VOCAB), not yet capped; 4 scores: (MAX_ROWS,).
// Constants: K, VOCAB, CAP (logits are CAP * tanh(l / CAP), 0 for no cap), WORKGROUP (a power of two). One workgroup
// per row; dispatch (count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> slots: array<vec4u>;
@group(0) @binding(2) var<storage, read> near: array<f32>;
@group(0) @binding(3) var<storage, read> logits: array<f32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;
#import near_weight
#import tanh
fn logit(i: u32) -> f32 {
  if (CAP > 0.0) { return CAP * tanh_of(logits[i] / CAP); }
  return logits[i];
}
#import logsumexp

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let row = group.x;
  if (row >= state.count) { return; }
  let total = logsumexp(row * VOCAB, index);
  if (index > 0u) { return; }
  let token = state.rows[row].token;
  var score = logit(row * VOCAB + token) - total;
  let number = u32(near[row * NEAR]);
  if (number > 0u) {
    let slot = slot_of(number);
    let added = slot_odds(slot) * near_weight(row, slot, token);
    if (added > 0.0) { score = log(exp(score) + added); }
    score -= log(1.0 + slot_odds(slot));
  }
  scores[state.rows[row].slot] = score;
}
