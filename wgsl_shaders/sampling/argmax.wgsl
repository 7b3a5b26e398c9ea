// Makes the token with each row's largest logit (the first of equals) the row's token of the next step, for rows with
// temperature 0; sample.wgsl handles the others.
// Bindings: 0 state; 1 logits: (rows, VOCAB); 2 history: (slots, RING).
// Constants: VOCAB, RING, WORKGROUP (a power of two). One workgroup per row; dispatch (rows).
#import state
@group(0) @binding(0) var<storage, read_write> state: State;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> history: array<u32>;
#import advance

const AHEAD = 16u;  // reads that an invocation issues together: a single workgroup must keep the memory busy

var<workgroup> values: array<f32, WORKGROUP>;
var<workgroup> indices: array<u32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3u) {
  let row = group.x * VOCAB;
  var best = min(lane, VOCAB - 1u);
  var value = logits[row + best];
  for (var first = lane; first < VOCAB; first += AHEAD * WORKGROUP) {
    var read: array<f32, AHEAD>;
    for (var j = 0u; j < AHEAD; j++) { read[j] = logits[row + min(first + j * WORKGROUP, VOCAB - 1u)]; }
    for (var j = 0u; j < AHEAD; j++) {
      if (read[j] > value) { value = read[j]; best = min(first + j * WORKGROUP, VOCAB - 1u); }
    }
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
  if (lane == 0u && state.rows[group.x].temperature == 0.0) { advance(group.x, indices[0]); }
}
