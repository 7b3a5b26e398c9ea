// Adds the biases of each row's slot to the row's logits.
// Bindings: 0 state; 1 logits: (rows, VOCAB); 2 biases: (slots, MOST), a token and the bits of a float each.
// Constants: VOCAB, MOST, WORKGROUP. An invocation takes a bias; dispatch (ceil(MOST / WORKGROUP), rows).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<storage, read> biases: array<vec2u>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= min(state.rows[id.y].biases, MOST)) { return; }
  let one = biases[state.rows[id.y].slot * MOST + id.x];
  logits[id.y * VOCAB + one.x] += bitcast<f32>(one.y);
}
