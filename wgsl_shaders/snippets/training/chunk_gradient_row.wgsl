// Row n of a chunk of the vocabulary. Rows behind its last one have no gradient.
fn gradient_row(n: u32) -> u32 { return state.first_row + min(n, state.size - 1u); }
