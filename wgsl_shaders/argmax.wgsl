// The token of the largest logit (the first of equals), made the next step's input.
// Bindings: 0 state; 1 logits: (VOCAB,); 2 history: (slots, RING).
// Constants: VOCAB, RING, WORKGROUP (a power of two). Dispatch (1).
#import state
@group(0) @binding(0) var<storage, read_write> state: State;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> history: array<u32>;
#import advance

var<workgroup> values: array<f32, WORKGROUP>;
var<workgroup> indices: array<u32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lane: u32) {
  var best = min(lane, VOCAB - 1u);
  var value = logits[best];
  for (var i = lane + WORKGROUP; i < VOCAB; i += WORKGROUP) {
    if (logits[i] > value) { value = logits[i]; best = i; }
  }
  values[lane] = value;
  indices[lane] = best;
  for (var stride = WORKGROUP / 2u; stride > 0u; stride /= 2u) {
    workgroupBarrier();
    if (lane < stride) {
      let other = lane + stride;
      if (values[other] > values[lane] || (values[other] == values[lane] && indices[other] < indices[lane])) {
        values[lane] = values[other];
        indices[lane] = indices[other];
      }
    }
  }
  if (lane == 0u) { advance(indices[0]); }
}
