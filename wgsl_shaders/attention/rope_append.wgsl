// q_out = rope(norm(q)); the layer's pages get rope(norm(k)) and v at each row's position. With HEAD_NORM, norm is per
// head, x / sqrt(mean(x^2) + EPS) * weight; otherwise it does nothing. With V_NORM, v is normalized, too, without weights.
// Bindings: 0 state; 1 qkv: (MAX_ROWS, (HEADS + 2 KV_HEADS) * HEAD_DIM); 2 angles: (positions, PAIRS) of (cos, sin),
//           any buffer if PAIRS is 0; 3 page_table; 4 q_norm and 5 k_norm: (HEAD_DIM / 4) vec4f, any buffers without
//           HEAD_NORM; 6 q_out: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 7 kv: the layer's pages.
// Constants: HEADS, KV_HEADS, HEAD_DIM (a multiple of 8), HEAD_SIZE: its values without padding, PAGE, MAX_PAGES,
// WORKGROUP, HEAD_NORM, V_NORM, EPS,
// PAIRS: the number of pairs of a head that rotate, INTERLEAVED: pairs are (2i, 2i + 1), otherwise (i, i + PAIRS).
// One invocation computes 4 values; dispatch (ceil(width / 4 / WORKGROUP), count), with width that of qkv.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> qkv: array<vec4f>;
@group(0) @binding(2) var<storage, read> angles: array<vec2f>;
@group(0) @binding(3) var<storage, read> page_table: array<u32>;
@group(0) @binding(4) var<storage, read> q_norm: array<vec4f>;
@group(0) @binding(5) var<storage, read> k_norm: array<vec4f>;
@group(0) @binding(6) var<storage, read_write> q_out: array<vec4f>;
@group(0) @binding(7) var<storage, read_write> kv: array<vec4f>;
#import kv_pages
#import rotate

const QUADS = HEAD_DIM / 4u;
const ALL_HEADS = HEADS + 2u * KV_HEADS;

var<private> head_scale: f32;

fn head_quad(head: u32, quad: u32) -> vec4f {
  let own = qkv[head * QUADS + quad];
  if (!HEAD_NORM) { return own; }
  if (head % ALL_HEADS < HEADS) { return own * head_scale * q_norm[quad]; }
  return own * head_scale * k_norm[quad];
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= state.count || id.x >= ALL_HEADS * QUADS) { return; }
  let row = state.rows[m];
  let head = id.x / QUADS;
  let quad = id.x % QUADS;
  let at = m * ALL_HEADS + head;
  head_scale = 1.0;
  if (select(V_NORM, HEAD_NORM, head < HEADS + KV_HEADS)) {
    // Each invocation sums its whole head: that is faster than waiting for other invocations.
    var sum = 0.0;
    for (var i = 0u; i < QUADS; i++) { sum += dot(qkv[at * QUADS + i], qkv[at * QUADS + i]); }
    head_scale = inverseSqrt(sum / f32(HEAD_SIZE) + EPS);
  }
  if (head < HEADS) {
    q_out[m * HEADS * QUADS + id.x] = rotated(at, quad, row.position);
  } else if (head < HEADS + KV_HEADS) {
    kv[kv_index(row.slot, row.position, head - HEADS, 0u) + quad] = rotated(at, quad, row.position);
  } else {
    kv[kv_index(row.slot, row.position, head - HEADS - KV_HEADS, 1u) + quad] = head_scale * qkv[at * QUADS + quad];
  }
}
