// Leaves each row that has a mask only the logits of the mask's tokens.
// Bindings: 0 state; 1 logits: (rows, VOCAB); 2 masks: (rows, WORDS), a bit for each token, the first in the lowest bit.
// Constants: VOCAB, WORDS, WORKGROUP. An invocation takes a word; dispatch (ceil(WORDS / WORKGROUP), rows).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<storage, read> masks: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let row = id.y;
  if (id.x >= WORDS || state.rows[row].masked == 0u) { return; }
  let mask = masks[row * WORDS + id.x];
  if (mask == 0xffffffffu) { return; }
  let first = 32u * id.x;
  for (var i = 0u; i < min(32u, VOCAB - first); i++) {
    if (((mask >> i) & 1u) == 0u) { logits[row * VOCAB + first + i] = -1e30; }
  }
}
