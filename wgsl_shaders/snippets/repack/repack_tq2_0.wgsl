// TQ2_0: 64 bytes of codes, half d.
#import repack_two_bits
fn repack(source: u32, block: u32, count: u32) {
  let byte = source / 8u * BLOCK_BYTES;
  repack_two_bits(byte, block);
  scales[run.supers + block / 8u] = load_u16(byte + 64u);
}
