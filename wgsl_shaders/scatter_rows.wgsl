// to[m, :] = from[i, :] if row m of a pack has loss i, otherwise 0.
// Bindings: 0 pack; 1 from_rows and 2 to_rows: (MAX_ROWS, K / 4) vec4f.
// Constants: K, WORKGROUP. Dispatch (ceil(K / 4 / WORKGROUP), count).
#import pack
@group(0) @binding(0) var<storage, read> pack: Pack;
@group(0) @binding(1) var<storage, read> from_rows: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> to_rows: array<vec4f>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= pack.count || id.x >= K / 4u) { return; }
  let loss = pack.rows[id.y].loss;
  var value = vec4f();
  if (loss > 0u) { value = from_rows[(loss - 1u) * (K / 4u) + id.x]; }
  to_rows[id.y * (K / 4u) + id.x] = value;
}
