// Blocks of 32 values of 16 bits, two to a word: 4 elements of quants. The format defines `widen`.
const OFFSETS = false;
const TWO_SCALES = false;
struct Block { words: array<vec4u, 4>, scale: vec2f, offset: vec2f }
#import blocks
fn load_block(row: u32, column: u32) -> Block {
  let at = block_of(row, column) * 4u;
  return Block(array<vec4u, 4>(quants[at], quants[at + 1u], quants[at + 2u], quants[at + 3u]), vec2f(1.0), vec2f());
}
fn widen4(words: vec4u, w: u32) -> vec4f {
  let two = select(words.xy, words.zw, w % 2u == 1u);
  return vec4f(widen(two.x), widen(two.y));
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  var words = b.words;
  return array<vec4f, 2>(widen4(words[w / 2u], w), widen4(words[w / 2u + 2u], w));
}
