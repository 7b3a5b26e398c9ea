// The state, which changes from token to token. The sampling kernels advance it on the GPU, so that the host writes
// nothing in a decode step.
// count: rows of this pass; logit_rows: how many of the last ones need logits; adapter: the LoRA set of all rows, 0 for
// none. A row is one token: its id, its position in the sequence, the sequence's slot, the sampling rules for the token
// after it (py_core/sampling.py), the adapter at the head's input, 0 for none, which may differ between the rows of
// a pass, the place of its grammar's state + 1, 0 for none, and 1 if it waits for the host to go on
// with the grammar, 2 if it stays in the state, how many biases its slot has, and how many positions behind its own it
// sees.
struct Row {
  token: u32, position: u32, slot: u32, seed: u32,
  temperature: f32, top_k: u32, top_p: f32, min_p: f32,
  repetition_penalty: f32, presence_penalty: f32, frequency_penalty: f32, penalty_window: u32,
  head_adapter: u32, grammar: u32, waits: u32, biases: u32,
  ahead: u32,
}
struct State {
  count: u32, logit_rows: u32, adapter: u32, unused: u32,
  rows: array<Row, MAX_ROWS>,
}

// The last position that a row sees.
fn last_seen(row: Row) -> u32 { return row.position + row.ahead; }
