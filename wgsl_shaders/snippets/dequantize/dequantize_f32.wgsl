// F32: blocks of 32 values are 8 elements of quants.
const OFFSETS = false;
const TWO_SCALES = false;
struct Block { base: u32, scale: vec2f, offset: vec2f }
#import blocks
fn load_block(row: u32, column: u32) -> Block { return Block(block_of(row, column) * 8u, vec2f(1.0), vec2f()); }
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  return array<vec4f, 2>(bitcast<vec4f>(quants[b.base + w]), bitcast<vec4f>(quants[b.base + w + 4u]));
}
