// Codes of Q4_K and Q5_K: every 32 bytes have two blocks, one in the low nibbles, the next in the high ones.
fn repack_nibbles(byte: u32, block: u32) {
  const LOW = vec4u(0x0f0f0f0fu);
  for (var pair = 0u; pair < 4u; pair++) {
    let first = load_vec4(byte + 32u * pair);
    let last = load_vec4(byte + 32u * pair + 16u);
    quants[block + 2u * pair] = (first & LOW) | ((last & LOW) << vec4u(4u));
    quants[block + 2u * pair + 1u] = ((first >> vec4u(4u)) & LOW) | (last & ~LOW);
  }
}
