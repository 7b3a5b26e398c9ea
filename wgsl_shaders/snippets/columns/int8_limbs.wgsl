// A block of 32 values of x in 16-bit fixed point, each value two int8 limbs: s * (256 a + b), s the block's largest
// value / LARGEST. Rounding errors are at most 1.6e-5 of the largest value.
const LARGEST = 32639.0;  // 127 * 256 + 127
const BYTES = 0x00ff00ffu;

// Four values in units of 1 / inverse: a word of limbs a and one of b.
fn limbs_of(values: vec4f, inverse: f32) -> vec2u {
  // The last two bytes of the float are a and b + 128, regardless of the signs.
  let bits = bitcast<vec4u>(fma(values, vec4f(inverse), vec4f(0x1.8p23 + 128.0)));
  let both = (bits.xy & vec2u(0xffffu)) | (bits.zw << vec2u(16u));
  return vec2u(((both.x >> 8u) & BYTES) | (both.y & ~BYTES), ((both.x & BYTES) | ((both.y & BYTES) << 8u)) ^ 0x80808080u);
}
