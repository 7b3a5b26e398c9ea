// Reads of the weights at an even byte offset: blocks of 18 and 34 bytes do not start at words.
fn load_u32(byte: u32) -> u32 {
  let word = byte / 4u;
  if ((byte & 2u) == 0u) { return weights[word]; }
  return (weights[word] >> 16u) | (weights[word + 1u] << 16u);
}
fn load_half(byte: u32) -> f32 {
  let pair = unpack2x16float(weights[byte / 4u]);
  return select(pair.x, pair.y, (byte & 2u) != 0u);
}
