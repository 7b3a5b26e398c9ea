// Q6_K: 128 bytes of codes, 64 of upper bits, 16 int8 s, half d. Four blocks share 64 bytes of codes (the first two
// have the low nibbles of 32 bytes each, the other two the high ones) and 32 bytes of upper bits (byte j has two bits
// of value j of each block).
fn repack(source: u32, block: u32, count: u32) {
  const LOW = vec4u(0x0f0f0f0fu);
  let byte = source / 8u * BLOCK_BYTES;
  for (var i = 0u; i < 8u; i++) {
    let codes = byte + i / 4u * 64u + i % 2u * 32u;
    let shift = vec4u(i % 4u / 2u * 4u);
    quants[block + i] = ((load_vec4(codes) >> shift) & LOW) | (((load_vec4(codes + 16u) >> shift) & LOW) << vec4u(4u));
    for (var half = 0u; half < 2u; half++) {
      var uppers = 0u;
      for (var w = 0u; w < 4u; w++) {
        let four = (load_u32(byte + 128u + i / 4u * 32u + half * 16u + w * 4u) >> (i % 4u * 2u)) & 0x03030303u;
        uppers |= four << (2u * w);
      }
      scales[run.highs + (block + i) * 2u + half] = uppers;
    }
  }
  for (var i = 0u; i < 4u; i++) { scales[block / 2u + i] = load_u32(byte + 192u + 4u * i); }
  scales[run.supers + block / 8u] = load_u16(byte + 208u);
}
