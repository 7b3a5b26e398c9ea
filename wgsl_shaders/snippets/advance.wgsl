// Makes the sampled token the next step's input and notes it in the sequence's ring: history[slot * RING + position % RING].
fn advance(token: u32) {
  let last = state.rows[state.count - 1u];
  let position = last.position + 1u;
  history[last.slot * RING + position % RING] = token;
  state.rows[0] = Row(token, position, last.slot, 0u);
  state.count = 1u;
}
