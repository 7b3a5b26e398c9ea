// Penalizes each token among a row's last penalty_window ones in the row's logits, once per token:
// l = (l > 0 ? l / repetition : l * repetition) - presence - count * frequency
// Bindings: 0 state; 1 logits: (rows, VOCAB); 2 history: (slots, RING), RING >= WORKGROUP.
// Constants: VOCAB, RING, WORKGROUP (the largest window). One workgroup per row, one invocation per position; dispatch
// (rows).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<storage, read> history: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3u) {
  let row = state.rows[group.x];
  let window = min(row.penalty_window, row.position + 1u);
  if (lane >= window) { return; }
  let ring = row.slot * RING;
  let token = history[ring + (row.position - lane) % RING];
  var count = 1.0;
  for (var back = 0u; back < window; back++) {
    if (back != lane && history[ring + (row.position - back) % RING] == token) {
      if (back < lane) { return; }  // the invocation of the token's newest position does the work
      count += 1.0;
    }
  }
  let at = group.x * VOCAB + token;
  var value = logits[at];
  value = select(value * row.repetition_penalty, value / row.repetition_penalty, value > 0.0);
  logits[at] = value - row.presence_penalty - count * row.frequency_penalty;
}
