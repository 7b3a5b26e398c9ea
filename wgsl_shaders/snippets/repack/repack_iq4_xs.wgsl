// IQ4_XS: half d, 2 bytes of the upper two bits of s[8], 4 of its lower four, 128 of codes, which are in the kernels'
// order.
fn repack(source: u32, block: u32, count: u32) {
  let byte = source / 8u * BLOCK_BYTES;
  let uppers = load_u16(byte + 2u);
  let lowers = load_u32(byte + 4u);
  for (var pair = 0u; pair < 4u; pair++) {
    var word = 0u;
    for (var i = 2u * pair; i < 2u * pair + 2u; i++) {
      let s = i32(((lowers >> (4u * i)) & 15u) | (((uppers >> (2u * i)) & 3u) << 4u)) - 32;
      word |= (bitcast<u32>(s) & 0xffffu) << (i % 2u * 16u);
    }
    scales[block / 2u + pair] = word;
  }
  for (var i = 0u; i < 8u; i++) { quants[block + i] = load_vec4(byte + 8u + 16u * i); }
  scales[run.supers + block / 8u] = load_u16(byte);
}
