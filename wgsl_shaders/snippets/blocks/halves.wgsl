// Two halves of a word, exactly: a GPU may flush subnormals to zero, and scales of K-quants often are subnormal.
fn halves(word: u32) -> vec2f {
  let bits = vec2u(word & 0xffffu, word >> 16u);
  let magnitude = vec2f(bits & vec2u(0x3ffu)) * 0x1p-24;
  let subnormal = select(magnitude, -magnitude, bits >= vec2u(0x8000u));
  return select(unpack2x16float(word), subnormal, (bits & vec2u(0x7c00u)) == vec2u(0u));
}
