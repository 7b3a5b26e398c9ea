@group(0) @binding(6) var<storage, read> page_table: array<u32>;
@group(0) @binding(7) var<storage, read_write> q_out: array<f32>;
@group(0) @binding(8) var<storage, read_write> kv: array<f32>;
#import kv_pages
// The place of a head in the pages, if it is a key or a value.
fn place_in_pages(slot: u32, position: u32, head: u32) -> u32 {
  return 4u * kv_index(slot, position, (head - HEADS) % KV_HEADS, u32(head >= HEADS + KV_HEADS));
}
// Stores value i of a head of row m.
fn store_in_head(m: u32, head: u32, in_pages: u32, i: u32, value: f32) {
  if (head < HEADS) {
    q_out[(m * HEADS + head) * HEAD_DIM + i] = value;
  } else {
    kv[in_pages + i] = value;
  }
}
