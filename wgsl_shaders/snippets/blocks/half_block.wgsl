// Converts blocks of x to integers: two neighbouring invocations share a block, each has 16 of its values.
// WORKGROUP must be even, and `reduce` must not be reduce_single.
#import int8_limbs
// The limbs of 16 values, in units of the block's s; the sums of these values and of the other half.
struct HalfBlock { a: vec4u, b: vec4u, s: f32, own: f32, other: f32 }
fn half_block(values: array<vec4f, 4>, index: u32) -> HalfBlock {
  var quads = values;
  let most = max(max(abs(quads[0]), abs(quads[1])), max(abs(quads[2]), abs(quads[3])));
  let total = dot(quads[0] + quads[1] + quads[2] + quads[3], vec4f(f32(OFFSETS)));
  let own = vec2f(max(max(most.x, most.y), max(most.z, most.w)), total);
  let other = vec2f(shuffle_xor(own.x, 1u, index), shuffle_xor(own.y, 1u, index));
  // The bound of 1e-30 keeps s normal. A division may be off by some ulp, an error that all values of a block would
  // share: hence the fma below.
  let inverse = LARGEST / max(max(own.x, other.x), 1e-30);
  let about = 1.0 / inverse;
  let s = fma(about, fma(-inverse, about, 1.0), about);
  var half: HalfBlock;
  for (var q = 0u; q < 4u; q++) {
    let limbs = limbs_of(quads[q], inverse);
    half.a[q] = limbs.x;
    half.b[q] = limbs.y;
  }
  half.s = s;
  half.own = own.y;
  half.other = other.y;
  return half;
}
