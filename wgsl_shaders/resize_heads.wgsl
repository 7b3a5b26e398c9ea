// y[m, h, i] = x[m, h, i], with TO values per head instead of FROM: those after the first FROM are zeros.
// Bindings: 0 state; 1 x: (MAX_ROWS, HEADS, FROM); 2 y: (MAX_ROWS, HEADS, TO).
// Constants: HEADS, FROM, TO, WORKGROUP. Dispatch (ceil(HEADS * TO / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= HEADS * TO) { return; }
  let i = id.x % TO;
  let from_at = (id.y * HEADS + id.x / TO) * FROM + min(i, FROM - 1u);
  y[id.y * HEADS * TO + id.x] = select(0.0, x[from_at], i < FROM);
}
