// A token for each row, the likeliest of logits / temperature with Gumbel noise (the same as `unmasked` of
// py_core/sampling.py), and log p of it by the model.
// Bindings: 0 state: a row's slot is the place of what is found; its position, seed and temperature say the noise;
//           1 states of grammars (py_core/backends/grammar_states.py): a row that names one gets a token of its mask;
//           2 logits: (rows, VOCAB), not yet capped; 3 found: (MAX_ROWS, 2): the token, and the bits of log p.
// Constants: VOCAB, CAP (logits are CAP * tanh(l / CAP), 0 for no cap), MASK (no row gets this token), WORKGROUP (a
// power of two). One workgroup per row; dispatch (count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> grammars: array<u32>;
@group(0) @binding(2) var<storage, read> logits: array<f32>;
@group(0) @binding(3) var<storage, read_write> found: array<vec2u>;
#import tanh
#import pcg
fn logit(i: u32) -> f32 {
  if (CAP > 0.0) { return CAP * tanh_of(logits[i] / CAP); }
  return logits[i];
}
#import logsumexp

var<workgroup> values: array<f32, WORKGROUP>;
var<workgroup> indices: array<u32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m = group.x;
  if (m >= state.count) { return; }
  let row = state.rows[m];
  let place = pcg(pcg(row.seed) ^ row.position);
  var best = 0u;
  var value = -3e38;
  for (var i = index; i < VOCAB; i += WORKGROUP) {
    if (i == MASK) { continue; }
    if (row.grammar != 0u && ((grammars[grammars[row.grammar] - 1u + i / 32u] >> (i % 32u)) & 1u) == 0u) { continue; }
    var score = logit(m * VOCAB + i);
    if (row.temperature > 0.0) {
      let number = (f32(pcg(place ^ i) >> 9u) + 0.5) / 8388608.0;
      score -= row.temperature * log(-log(number));
    }
    if (score > value) { value = score; best = i; }
  }
  values[index] = value;
  indices[index] = best;
  for (var stride = WORKGROUP / 2u; stride > 0u; stride /= 2u) {
    workgroupBarrier();
    if (index < stride) {
      let other = index + stride;
      if (values[other] > values[index] || (values[other] == values[index] && indices[other] < indices[index])) {
        values[index] = values[other];
        indices[index] = indices[other];
      }
    }
  }
  let total = logsumexp(m * VOCAB, index);
  if (index == 0u) {
    let token = indices[0];
    found[row.slot] = vec2u(token, bitcast<u32>(logit(m * VOCAB + token) - total));
  }
}
