// One layer's hot keys and values are in pages of PAGE tokens: kv[page][key 0 | value 1][kv head][token][HEAD_DIM / 4].
fn index_in(page: u32, position: u32, head: u32, which: u32) -> u32 {
  return (((page * 2u + which) * KV_HEADS + head) * PAGE + position % PAGE) * (HEAD_DIM / 4u);
}
