// l' = log(exp(l) + odds * weight * exp(logsumexp(l))) for the tokens that followed a row's neighbours, if its gate is
// open.
// Bindings: 0 state; 1 slots and 2 near as in head_slots.wgsl; 3 logits: (rows that need logits, VOCAB).
// Constants: K, VOCAB, WORKGROUP (a power of two). One workgroup per row; dispatch (rows that need logits).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> slots: array<vec4u>;
@group(0) @binding(2) var<storage, read> near: array<f32>;
@group(0) @binding(3) var<storage, read_write> logits: array<f32>;
#import near_weight
fn logit(i: u32) -> f32 { return logits[i]; }
#import logsumexp

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let row = group.x;
  if (row >= state.logit_rows) { return; }
  let number = u32(near[row * NEAR]);
  if (number == 0u) { return; }
  let slot = slot_of(number);
  let total = logsumexp(row * VOCAB, index);
  for (var i = index; i < slot_count(slot); i += WORKGROUP) {
    let token = slot_token(slot, i);
    var seen = false;
    for (var j = 0u; j < i; j++) { seen = seen || slot_token(slot, j) == token; }
    // A weight may underflow to 0: log would fail if exp is 0, too.
    let added = slot_odds(slot) * near_weight(row, slot, token);
    let at = row * VOCAB + token;
    if (!seen && added > 0.0) { logits[at] = total + log(exp(logits[at] - total) + added); }
  }
}
