// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL: a block is one or two halves, the fifth bits (bit j is that of value j), then
// codes, which are in the kernels' order already.
fn repack(source: u32, block: u32, count: u32) {
  const VECTORS = QUANT_WORDS / 4u;
  var halves = 0u;
  for (var i = 0u; i < count; i++) {
    let byte = (source + i) * BLOCK_BYTES;
    for (var v = 0u; v < VECTORS; v++) {
      quants[(block + i) * VECTORS + v] = load_vec4(byte + BLOCK_BYTES - 16u * (VECTORS - v));
    }
    if (HIGH_WORDS == 1u) {
      let bits = load_u32(byte + 2u * SCALE_HALVES);
      var fifths = 0u;
      for (var w = 0u; w < 8u; w++) { fifths |= ((((bits >> (4u * w)) & 15u) * 0x00204081u) & 0x01010101u) << w; }
      scales[run.highs + block + i] = fifths;
    }
    if (SCALE_HALVES == 2u) { scales[block + i] = load_u32(byte); } else { halves |= load_u16(byte) << (16u * i); }
  }
  if (SCALE_HALVES == 1u) { scales[block / 2u] = halves; }
}
