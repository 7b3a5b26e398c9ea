// One layer's keys and values live in pages of PAGE tokens: kv[page][key 0 | value 1][kv head][token][HEAD_DIM / 4].
// page_table[slot * MAX_PAGES + position / PAGE] names the page of a sequence's position.
fn kv_index(slot: u32, position: u32, head: u32, which: u32) -> u32 {
  let page = page_table[slot * MAX_PAGES + position / PAGE];
  return (((page * 2u + which) * KV_HEADS + head) * PAGE + position % PAGE) * (HEAD_DIM / 4u);
}
