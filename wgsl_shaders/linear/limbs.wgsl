// Rows of x as 16-bit fixed-point numbers, for matmul_integer.wgsl: blocks of 32 values (int8_limbs.wgsl).
// Bindings: 0 state; 1 x: (MAX_ROWS, K / 4) vec4f; 2 limbs: (K / 32, MAX_ROWS) records (limbs_record.wgsl).
// Constants: K, MAX_ROWS, WORKGROUP. One invocation per record; dispatch (ceil(K / 32 / WORKGROUP), count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> records: array<Limbs>;
#import limbs_record

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  let block = id.x;
  if (m >= state.count || block >= K / 32u) { return; }
  records[block * MAX_ROWS + m] = limbs_record(m, block);
}
