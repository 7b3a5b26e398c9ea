// Takes each row from its grammar's state to the one behind the token that was just sampled. If the host has not told which
// one that is, the row waits for it: the next steps leave it as it is, and the ring has WAITS behind its last token.
// Bindings: 0 state; 1 states of grammars (py_core/backends/grammar_states.py); 2 history: (slots, RING).
// Constants: WORDS (of a mask), RING, WORKGROUP (at least as many as a state has exits). One workgroup per row; dispatch
// (rows).
#import state
@group(0) @binding(0) var<storage, read_write> state: State;
@group(0) @binding(1) var<storage, read> grammars: array<u32>;
@group(0) @binding(2) var<storage, read_write> history: array<u32>;

const WAITS = 0xffffffffu;

var<workgroup> next: atomic<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3u) {
  if (lane == 0u) { atomicStore(&next, 0u); }
  workgroupBarrier();
  let row = state.rows[group.x];
  let at = row.grammar;
  let follows = group.x < state.count && at != 0u && row.waits == 0u;
  if (follows) {
    let exits = grammars[at - 1u];
    let exit = at + 1u + 2u * lane;
    if (lane < exits && grammars[exit] == row.token) { atomicStore(&next, grammars[exit + 1u]); }
    if (lane == 0u && grammars[at] != 0u) {
      let keeps = grammars[grammars[at] - 1u + WORDS + row.token / 32u];
      if (((keeps >> (row.token % 32u)) & 1u) != 0u) { atomicStore(&next, at); }
    }
  }
  workgroupBarrier();
  if (follows && lane == 0u) {
    let found = atomicLoad(&next);
    state.rows[group.x].grammar = found;
    if (found == 0u) {
      state.rows[group.x].waits = 1u;
      history[row.slot * RING + (row.position + 1u) % RING] = WAITS;
    }
  }
}
