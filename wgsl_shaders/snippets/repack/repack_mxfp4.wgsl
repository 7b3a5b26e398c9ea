// MXFP4: a byte e, 16 of codes, which are in the kernels' order. d = 2 ^ (e - 128), subnormal for e < 2.
fn repack(source: u32, block: u32, count: u32) {
  var word = 0u;
  for (var i = 0u; i < count; i++) {
    let byte = (source + i) * BLOCK_BYTES;
    let e = load_u32(byte) & 0xffu;
    word |= select((e - 1u) << 7u, 0x20u << e, e < 2u) << (16u * i);
    quants[block + i] = load_vec4(byte + 1u);
  }
  scales[block / 2u] = word;
}
