// Converts blocks from a file's layout to the layout of the kernels (py_core/backends/webgpu/weights/layout.py).
// Bindings: 0 run: the range of blocks; 1 raw: their bytes, from 0 on; 2 quants and 3 scales: of a whole part.
// Constants: BLOCK_BYTES in the file, WORKGROUP; UNIT: the blocks of 32 that an invocation converts (no other
// invocation writes to their words);
// QUANT_WORDS, SCALE_HALVES, HIGH_WORDS: see layout.py.
// Dispatch (ceil(run.count / UNIT / WORKGROUP)).
struct Run {
  first: u32,   // number of the first block in the part, a multiple of UNIT
  count: u32,
  supers: u32,  // where D begins in scales
  highs: u32,   // where H begins
}
@group(0) @binding(0) var<storage, read> run: Run;
@group(0) @binding(1) var<storage, read> raw: array<u32>;
@group(0) @binding(2) var<storage, read_write> quants: array<vec4u>;
@group(0) @binding(3) var<storage, read_write> scales: array<u32>;
#import load_raw
#import repack

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let block = id.x * UNIT;
  if (block < run.count) { repack(block, run.first + block, min(UNIT, run.count - block)); }
}
