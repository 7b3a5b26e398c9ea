// Four codes minus BIAS, as floats: exact and without conversions, which are slow on GPUs. A code becomes the last
// bits of the float 2^23 or, if it begins at bit 8, of 2^15, which is then subtracted.
// word: the low nibble of byte j has the lowest bits of code j. uppers[j]: code j's other bits, at bits 4.. for even j,
// 12.. for odd.
fn nibble_codes(word: u32, uppers: vec4u) -> vec4f {
  let nibbles = vec4u(word, word, word >> 16u, word >> 16u) & vec4u(0xfu, 0xf00u, 0xfu, 0xf00u);
  let floats = bitcast<vec4f>(nibbles | uppers | vec4u(0x4b000000u, 0x47000000u, 0x4b000000u, 0x47000000u));
  return floats - vec4f(0x1p23 + BIAS, 0x1p15 + BIAS, 0x1p23 + BIAS, 0x1p15 + BIAS);
}
