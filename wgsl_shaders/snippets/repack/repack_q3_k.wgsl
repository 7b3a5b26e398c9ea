// Q3_K: 32 bytes of third bits (bit i of byte j belongs to value j of block i), 64 of codes, 12 of s, half d. s[16] has
// 6 bits each: of 8 bytes the low nibbles have 4 of the first eight, the high ones of the others; bits 2g and 2g + 1 of
// the last four bytes have the upper two of s[4g] .. s[4g + 3].
#import repack_two_bits
fn repack(source: u32, block: u32, count: u32) {
  let byte = source / 8u * BLOCK_BYTES;
  for (var i = 0u; i < 8u; i++) {
    var thirds = 0u;
    for (var w = 0u; w < 8u; w++) { thirds |= ((load_u32(byte + 4u * w) >> i) & 0x01010101u) << w; }
    scales[run.highs + block + i] = thirds;
  }
  repack_two_bits(byte + 32u, block);
  let uppers = load_u32(byte + 104u);
  for (var g = 0u; g < 4u; g++) {
    let low = (load_u32(byte + 96u + g % 2u * 4u) >> (g / 2u * 4u)) & 0x0f0f0f0fu;
    let six = low | (((uppers >> (2u * g)) & 0x03030303u) << 4u);
    // Minus 32, in each byte: the lower 6 bits of the sum with bit 5 flipped, and bits 6 and 7 copied from bit 5.
    let turned = six ^ 0x20202020u;
    let signs = turned & 0x20202020u;
    scales[block / 2u + g] = turned | (signs << 1u) | (signs << 2u);
  }
  scales[run.supers + block / 8u] = load_u16(byte + 108u);
}
