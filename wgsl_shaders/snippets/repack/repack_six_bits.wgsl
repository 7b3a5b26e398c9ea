// The first 16 bytes of Q4_K and Q5_K: halves d and m, then eight s and eight t of 6 bits in 12 bytes. Bytes 0..7 have
// all bits of the first four s and t, and the top two of the last four; bytes 8..11 have the low nibbles of the last
// four.
fn repack_six_bits(byte: u32, block: u32) {
  scales[run.supers + block / 8u] = load_u32(byte);
  let first_s = load_u32(byte + 4u);
  let first_t = load_u32(byte + 8u);
  let last = load_u32(byte + 12u);
  let s = vec2u(first_s & 0x3f3f3f3fu, (last & 0x0f0f0f0fu) | ((first_s >> 2u) & 0x30303030u));
  let t = vec2u(first_t & 0x3f3f3f3fu, ((last >> 4u) & 0x0f0f0f0fu) | ((first_t >> 2u) & 0x30303030u));
  for (var pair = 0u; pair < 4u; pair++) {
    let two_s = s[pair / 2u] >> (pair % 2u * 16u);
    let two_t = t[pair / 2u] >> (pair % 2u * 16u);
    scales[block / 2u + pair] = (two_s & 0xffu) | ((two_t & 0xffu) << 8u)
                              | ((two_s & 0xff00u) << 8u) | ((two_t & 0xff00u) << 16u);
  }
}
