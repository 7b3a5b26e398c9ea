// Leaves each row that follows a grammar only the logits of the tokens that may come next.
// Bindings: 0 state; 1 logits: (rows, VOCAB); 2 states of grammars (py_core/backends/grammar_states.py).
// Constants: VOCAB, WORDS (of a mask), WORKGROUP (a multiple of 32, at least as many as a state has exits). An invocation
// takes a token; dispatch (ceil(VOCAB / WORKGROUP), rows).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<storage, read> grammars: array<u32>;

const GROUP_WORDS = WORKGROUP / 32u;
var<workgroup> allowed: array<atomic<u32>, GROUP_WORDS>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3u) {
  let at = state.rows[group.y].grammar;
  let first = group.x * WORKGROUP;
  if (lane < GROUP_WORDS) { atomicStore(&allowed[lane], 0u); }
  workgroupBarrier();
  if (at != 0u) {
    let exits = grammars[at - 1u];
    if (grammars[at] != 0u) {
      let word = first / 32u + lane;
      if (lane < GROUP_WORDS && word < WORDS) { atomicStore(&allowed[lane], grammars[grammars[at] - 1u + word]); }
    } else if (lane < exits) {
      let token = grammars[at + 1u + 2u * lane];
      if (token >= first && token - first < WORKGROUP) {
        atomicOr(&allowed[(token - first) / 32u], 1u << ((token - first) % 32u));
      }
    }
  }
  workgroupBarrier();
  let token = first + lane;
  if (at != 0u && token < VOCAB && ((atomicLoad(&allowed[lane / 32u]) >> (lane % 32u)) & 1u) == 0u) {
    logits[group.y * VOCAB + token] = -1e30;
  }
}
