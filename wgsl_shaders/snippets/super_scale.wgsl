// Q4_K, Q5_K: (d * s, m * t) of a block.
#import halves
fn super_scale(block: u32) -> vec2f {
  let st = scales[block / 2u] >> (block % 2u * 16u);
  return halves(scales[BLOCKS / 2u + block / 8u]) * vec2f(vec2u(st & 0xffu, (st >> 8u) & 0xffu));
}
