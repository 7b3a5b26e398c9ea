// What changes from token to token. The sampling kernels advance it on the GPU, so that a decode step writes nothing.
// count: rows of this pass. A row is one token: its id, its position in the sequence, and the sequence's slot.
// logit_rows: how many of the last rows need logits.
struct Row { token: u32, position: u32, slot: u32, unused: u32 }
struct State {
  count: u32, seed: u32, temperature: f32, top_k: u32,
  top_p: f32, min_p: f32, repetition_penalty: f32, presence_penalty: f32,
  frequency_penalty: f32, penalty_window: u32, logit_rows: u32, unused: u32,
  rows: array<Row, MAX_ROWS>,
}
