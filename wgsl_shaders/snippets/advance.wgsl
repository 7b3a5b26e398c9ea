// Makes the token sampled for row r its sequence's next one, and records it in the ring of the sequence's history:
// history[slot * RING + position % RING].
fn advance(r: u32, token: u32) {
  // A recorded dispatch may cover more rows.
  if (r >= state.count || state.rows[r].waits == 1u) { return; }
  let position = state.rows[r].position + 1u;
  history[state.rows[r].slot * RING + position % RING] = token;
  state.rows[r].token = token;
  state.rows[r].position = position;
}
