// Writes k and v to the layer's pages at each row's position, if qkv.wgsl or rope_append.wgsl has not done so.
// Bindings: 0 state; 1 k and 2 v: (MAX_ROWS, KV_HEADS * HEAD_DIM / 4) vec4f; 3 page_table; 4 kv: the layer's pages.
// Constants: KV_HEADS, HEAD_DIM (a multiple of 4), PAGE, MAX_PAGES, WORKGROUP.
// One invocation writes 4 values of each; dispatch (ceil(KV_HEADS * HEAD_DIM / 4 / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> k: array<vec4f>;
@group(0) @binding(2) var<storage, read> v: array<vec4f>;
@group(0) @binding(3) var<storage, read> page_table: array<u32>;
@group(0) @binding(4) var<storage, read_write> kv: array<vec4f>;
#import kv_pages

const QUADS = HEAD_DIM / 4u;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= KV_HEADS * QUADS) { return; }
  let row = state.rows[id.y];
  let head = id.x / QUADS;
  let quad = id.x % QUADS;
  let at = id.y * KV_HEADS * QUADS + id.x;
  kv[kv_index(row.slot, row.position, head, 0u) + quad] = k[at];
  kv[kv_index(row.slot, row.position, head, 1u) + quad] = v[at];
}
