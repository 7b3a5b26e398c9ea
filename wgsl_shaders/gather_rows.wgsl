// to[i, :] = from[rows[i].row, :] for the rows of a pack that have a loss.
// Bindings: 0 state: a chunk; 1 rows: LossRow of each; 2 from_rows and 3 to_rows: (MAX_ROWS, K / 4) vec4f.
// Constants: K, WORKGROUP. Dispatch (ceil(K / 4 / WORKGROUP), losses).
#import chunk_state
@group(0) @binding(0) var<storage, read> state: State;
struct LossRow { row: u32, target_token: u32, weight: f32, kl_weight: f32 }
@group(0) @binding(1) var<storage, read> rows: array<LossRow>;
@group(0) @binding(2) var<storage, read> from_rows: array<vec4f>;
@group(0) @binding(3) var<storage, read_write> to_rows: array<vec4f>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= K / 4u) { return; }
  to_rows[id.y * (K / 4u) + id.x] = from_rows[rows[id.y].row * (K / 4u) + id.x];
}
