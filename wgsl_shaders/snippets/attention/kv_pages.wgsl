// page_table[slot * MAX_PAGES + position / PAGE] is the page of a sequence's position.
#import page_layout
fn page_of(slot: u32, position: u32) -> u32 { return page_table[slot * MAX_PAGES + position / PAGE]; }
fn kv_index(slot: u32, position: u32, head: u32, which: u32) -> u32 {
  return index_in(page_of(slot, position), position, head, which);
}
