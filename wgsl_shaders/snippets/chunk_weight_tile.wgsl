// As weight_tile.wgsl, for the rows of a chunk of the vocabulary.
const TILE_N = ROWS;
fn weight_row(n0: u32, i: u32) -> u32 { return state.first_row + min(n0 + i, state.size - 1u); }
