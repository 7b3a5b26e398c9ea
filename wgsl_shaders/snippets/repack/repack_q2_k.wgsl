// Q2_K: 16 bytes of s and t, 64 of codes, halves d and m.
#import repack_two_bits
fn repack(source: u32, block: u32, count: u32) {
  let byte = source / 8u * BLOCK_BYTES;
  for (var i = 0u; i < 4u; i++) { scales[block / 2u + i] = load_u32(byte + 4u * i); }
  repack_two_bits(byte + 16u, block);
  scales[run.supers + block / 8u] = load_u32(byte + 80u);
}
