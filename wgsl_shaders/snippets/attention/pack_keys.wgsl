// The keys and values that the rows of a query head read, for attention_pairs.wgsl, and which of four rows see a key.
// Needs pack, k and v, QUADS and pack_sight. Constants: HEADS, KV_HEADS.
var<private> head: u32;

fn other_quad(which: u32, row: u32, quad: u32) -> vec4f {
  if (row >= pack.count) { return vec4f(); }
  let at = (row * KV_HEADS + head * KV_HEADS / HEADS) * QUADS + quad;
  if (which == 0u) { return k[at]; }
  return v[at];
}
fn seen_by(row: u32, key: u32) -> vec4<bool> {
  return vec4<bool>(sees(row, key), sees(row + 8u, key), sees(row + 16u, key), sees(row + 24u, key));
}
