// out[m, :] = dy[m, :], rotated by the negated angles, head by head: the gradient of rope.wgsl's x. Negating the second
// value of each pair before and after a rotation reverses its direction.
// Bindings: 0 state; 1 dy: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 angles: (positions, PAIRS) of (cos, sin); 3 out:
//           as dy.
// Constants and dispatch as for rope.wgsl.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> dy: array<vec4f>;
@group(0) @binding(2) var<storage, read> angles: array<vec2f>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4f>;
#import rotate

const QUADS = HEAD_DIM / 4u;

fn mirrored(value: vec4f, quad: u32) -> vec4f {
  let n = vec4u(quad * 4u) + vec4u(0u, 1u, 2u, 3u);
  var second = n >= vec4u(PAIRS);
  if (INTERLEAVED) { second = n % vec4u(2u) == vec4u(1u); }
  return select(value, -value, second & (n < vec4u(2u * PAIRS)));
}

fn head_quad(head: u32, quad: u32) -> vec4f { return mirrored(dy[head * QUADS + quad], quad); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= HEADS * QUADS) { return; }
  let at = id.y * HEADS * QUADS + id.x;
  out[at] = mirrored(rotated(at / QUADS, at % QUADS, state.rows[id.y].position), at % QUADS);
}
