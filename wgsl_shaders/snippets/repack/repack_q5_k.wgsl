// Q5_K: 16 bytes of scales (repack_six_bits), 32 of fifth bits (bit i of byte j belongs to value j of block i), 128 of
// codes.
#import repack_six_bits
#import repack_nibbles
fn repack(source: u32, block: u32, count: u32) {
  let byte = source / 8u * BLOCK_BYTES;
  repack_six_bits(byte, block);
  for (var i = 0u; i < 8u; i++) {
    var fifths = 0u;
    for (var w = 0u; w < 8u; w++) { fifths |= ((load_u32(byte + 16u + 4u * w) >> i) & 0x01010101u) << w; }
    scales[run.highs + block + i] = fifths;
  }
  repack_nibbles(byte + 48u, block);
}
