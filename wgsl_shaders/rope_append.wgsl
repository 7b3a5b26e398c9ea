// q_out = rope(q); the layer's pages get rope(k) and v at each row's position.
// Bindings: 0 state; 1 qkv: (MAX_ROWS, (HEADS + 2 KV_HEADS) * HEAD_DIM); 2 angles: (positions, HEAD_DIM / 2) of (cos, sin);
//           3 page_table; 4 q_out: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 5 kv: the layer's pages.
// Constants: HEADS, KV_HEADS, HEAD_DIM (a multiple of 8), PAGE, MAX_PAGES, WORKGROUP,
// INTERLEAVED: pairs are (2i, 2i + 1), otherwise (i, i + HEAD_DIM / 2).
// One invocation makes 4 values; dispatch (ceil(width / 4 / WORKGROUP), count), width that of qkv.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> qkv: array<vec4f>;
@group(0) @binding(2) var<storage, read> angles: array<vec2f>;
@group(0) @binding(3) var<storage, read> page_table: array<u32>;
@group(0) @binding(4) var<storage, read_write> q_out: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> kv: array<vec4f>;
#import kv_pages

const QUADS = HEAD_DIM / 4u;

fn rotate(at: u32, quad: u32, position: u32) -> vec4f {
  let own = qkv[at];
  let half = HEAD_DIM / 2u;
  if (INTERLEAVED) {
    let a = angles[position * half + quad * 2u];
    let b = angles[position * half + quad * 2u + 1u];
    return vec4f(own.x * a.x - own.y * a.y, own.x * a.y + own.y * a.x,
                 own.z * b.x - own.w * b.y, own.z * b.y + own.w * b.x);
  }
  let first = quad < QUADS / 2u;
  let partner = qkv[select(at - QUADS / 2u, at + QUADS / 2u, first)];
  let signed_partner = select(partner, -partner, first);
  var out: vec4f;
  for (var i = 0u; i < 4u; i++) {
    let a = angles[position * half + (quad * 4u + i) % half];
    out[i] = own[i] * a.x + signed_partner[i] * a.y;
  }
  return out;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  let width = (HEADS + 2u * KV_HEADS) * QUADS;
  if (m >= state.count || id.x >= width) { return; }
  let row = state.rows[m];
  let head = id.x / QUADS;
  let quad = id.x % QUADS;
  let at = m * width + id.x;
  if (head < HEADS) {
    q_out[m * HEADS * QUADS + id.x] = rotate(at, quad, row.position);
  } else if (head < HEADS + KV_HEADS) {
    kv[kv_index(row.slot, row.position, head - HEADS, 0u) + quad] = rotate(at, quad, row.position);
  } else {
    kv[kv_index(row.slot, row.position, head - HEADS - KV_HEADS, 1u) + quad] = qkv[at];
  }
}
