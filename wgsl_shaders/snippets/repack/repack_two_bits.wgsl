// The lower two bits of codes of Q2_K and Q3_K: each 32 bytes have four blocks, byte j two bits of value j of each.
fn repack_two_bits(byte: u32, block: u32) {
  for (var pair = 0u; pair < 4u; pair++) {
    var words = vec4u();  // two of each of two blocks
    for (var part = 0u; part < 4u; part++) {
      let i = 2u * pair + part / 2u;
      let codes = byte + i / 4u * 32u + part % 2u * 16u;
      var word = 0u;
      for (var w = 0u; w < 4u; w++) {
        word |= ((load_u32(codes + 4u * w) >> (i % 4u * 2u)) & 0x03030303u) << (2u * w);
      }
      words[part] = word;
    }
    quants[block / 2u + pair] = words;
  }
}
