// Q4_K: 16 bytes of scales (repack_six_bits), then 128 of codes.
#import repack_six_bits
#import repack_nibbles
fn repack(source: u32, block: u32, count: u32) {
  let byte = source / 8u * BLOCK_BYTES;
  repack_six_bits(byte, block);
  repack_nibbles(byte + 16u, block);
}
