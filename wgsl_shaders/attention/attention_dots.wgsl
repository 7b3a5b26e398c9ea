// stats[m, h] = (log_sums[m, h], dout[m, h] . out[m, h]): the input of attention_gradient_rows.wgsl and
// attention_gradient_keys.wgsl for each row.
// Bindings: 0 state; 1 log_sums: (MAX_ROWS, HEADS); 2 dout and 3 out: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 4 stats:
//           (MAX_ROWS, HEADS) vec2f.
// Constants: HEADS, HEAD_DIM, WORKGROUP. Dispatch (ceil(HEADS / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> log_sums: array<f32>;
@group(0) @binding(2) var<storage, read> dout: array<vec4f>;
@group(0) @binding(3) var<storage, read> out: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> stats: array<vec2f>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= HEADS) { return; }
  let at = id.y * HEADS + id.x;
  var sum = 0.0;
  for (var i = 0u; i < HEAD_DIM / 4u; i++) { sum += dot(dout[at * (HEAD_DIM / 4u) + i], out[at * (HEAD_DIM / 4u) + i]); }
  stats[at] = vec2f(log_sums[at], sum);
}
