// One layer's keys and values live in pages of PAGE tokens: kv[page][key 0 | value 1][kv head][token][HEAD_DIM / 4].
// page_table[slot * MAX_PAGES + position / PAGE] names the page of a sequence's position.
fn page_of(slot: u32, position: u32) -> u32 { return page_table[slot * MAX_PAGES + position / PAGE]; }
fn index_in(page: u32, position: u32, head: u32, which: u32) -> u32 {
  return (((page * 2u + which) * KV_HEADS + head) * PAGE + position % PAGE) * (HEAD_DIM / 4u);
}
fn kv_index(slot: u32, position: u32, head: u32, which: u32) -> u32 {
  return index_in(page_of(slot, position), position, head, which);
}
