// Like weight_tile.wgsl, for the rows of a chunk of the vocabulary.
const TILE_N = ROWS;
fn tile_row(n0: u32, i: u32) -> u32 { return min(n0 + i, state.size - 1u); }
fn weight_row(n0: u32, i: u32) -> u32 { return state.first_row + tile_row(n0, i); }
