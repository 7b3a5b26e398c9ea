// Blocks of 32 values of 16 bits, two to a word: 4 elements of quants. `widen` is the format's.
struct Block { base: u32 }
fn load_block(block: u32) -> Block { return Block(block * 4u); }
fn widen4(at: u32, w: u32) -> vec4f {
  let words = quants[at + w / 2u];
  let two = select(words.xy, words.zw, w % 2u == 1u);
  return vec4f(widen(two.x), widen(two.y));
}
// Values 4w..4w+3 and 16+4w..16+4w+3 of a block, w < 4.
fn dequantize8(b: Block, w: u32) -> array<vec4f, 2> {
  return array<vec4f, 2>(widen4(b.base, w), widen4(b.base + 2u, w));
}
