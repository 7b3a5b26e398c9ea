// x[m, :] = SCALE * W[token[m], :]
// Bindings: 0 state; 1 quants and 2 scales: rows FIRST_ROW .. FIRST_ROW + N of the table, K values each, in blocks of
//           32; 3 x: (MAX_ROWS, K / 4) vec4f.
// Constants: K, N, BLOCKS (of these rows), FIRST_ROW (a table larger than one binding comes in several parts, one
// dispatch each), SCALE, WORKGROUP.
// One invocation computes 8 values; dispatch (ceil(4 ceil(K / 32) / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> quants: array<vec4u>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read_write> x: array<vec4f>;
#import dequantize8

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  let unit = id.x;
  let row = state.rows[m].token - FIRST_ROW;
  if (m >= state.count || unit >= ROW_BLOCKS * 4u || row >= N) { return; }
  let values = dequantize8(load_block(row, unit / 4u), unit % 4u);
  let quad = unit / 4u * 8u + unit % 4u;
  let out = m * (K / 4u) + quad;
  if (quad < K / 4u) { x[out] = SCALE * values[0]; }
  if (quad + 4u < K / 4u) { x[out + 4u] = SCALE * values[1]; }
}
