// Queries, keys and values are handed on to attention, a later phase of a persistent kernel, which stores keys and values: from
// store_at on, all heads of q, then those of k and v.
fn place_in_pages(slot: u32, position: u32, head: u32) -> u32 { return 0u; }
fn store_in_head(m: u32, head: u32, in_pages: u32, i: u32, value: f32) { hand(store_at + head * HEAD_DIM + i, value); }
