// Changes the logits of tokens among the sequence's last penalty_window ones, each token once:
// l = (l > 0 ? l / repetition : l * repetition) - presence - count * frequency
// Bindings: 0 state; 1 logits: (VOCAB,); 2 history: (slots, RING), RING >= WORKGROUP.
// Constants: VOCAB, RING, WORKGROUP (the largest window). One invocation a position; dispatch (1).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<storage, read> history: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lane: u32) {
  let last = state.rows[state.count - 1u];
  let window = min(state.penalty_window, last.position + 1u);
  if (lane >= window) { return; }
  let ring = last.slot * RING;
  let token = history[ring + (last.position - lane) % RING];
  var count = 1.0;
  for (var back = 0u; back < window; back++) {
    if (back != lane && history[ring + (last.position - back) % RING] == token) {
      if (back < lane) { return; }  // the newest place of the token does the work
      count += 1.0;
    }
  }
  var value = logits[token];
  value = select(value * state.repetition_penalty, value / state.repetition_penalty, value > 0.0);
  logits[token] = value - state.presence_penalty - count * state.frequency_penalty;
}
