// y[m, :] = rope(x[m, :]), head by head, if qkv.wgsl or rope_append.wgsl has not rotated it.
// Bindings: 0 state; 1 x: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 angles: (positions, PAIRS) of (cos, sin); 3 y: as
//           x.
// Constants: HEADS, HEAD_DIM (a multiple of 4), PAIRS, WORKGROUP; INTERLEAVED: pairs are (2i, 2i + 1), otherwise
// (i, i + PAIRS). One invocation computes 4 values; dispatch (ceil(HEADS * HEAD_DIM / 4 / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read> angles: array<vec2f>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4f>;
#import rotate

const QUADS = HEAD_DIM / 4u;

fn head_quad(head: u32, quad: u32) -> vec4f { return x[head * QUADS + quad]; }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= HEADS * QUADS) { return; }
  let at = id.y * HEADS * QUADS + id.x;
  y[at] = rotated(at / QUADS, at % QUADS, state.rows[id.y].position);
}
