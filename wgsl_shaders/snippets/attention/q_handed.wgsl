// The query of one head, and the newest key and value, are handed on by an earlier phase of a persistent kernel (qkv_handed.wgsl).
// One workgroup of those that share a key and a value `stores` them in their page.
var<workgroup> arrived: array<vec4f, 3u * QUADS>;
fn arrive(slot: u32, position: u32, head: u32, kv_head: u32, stores: bool, index: u32) {
  for (var i = index; i < 3u * HEAD_DIM; i += WORKGROUP) {
    let part = i / HEAD_DIM;
    let place = select(HEADS + (part - 1u) * KV_HEADS + kv_head, head, part == 0u) * HEAD_DIM + i % HEAD_DIM;
    arrived[i / 4u][i % 4u] = taken(read_at + place);
  }
  workgroupBarrier();
  if (stores && index < 2u * QUADS) {
    kv[kv_index(slot, position, kv_head, index / QUADS) + index % QUADS] = arrived[QUADS + index];
  }
}
fn q_quad(i: u32) -> vec4f { return arrived[i % QUADS]; }
fn newest_or(floats: vec4f, is_newest: bool, which: u32, quad: u32) -> vec4f {
  if (is_newest) { return arrived[(1u + which) * QUADS + quad]; }
  return floats;
}
