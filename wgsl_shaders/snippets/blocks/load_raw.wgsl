// Reads raw at any byte offset, 16 bits at an even one: some formats' blocks do not begin at words.
fn load_u16(byte: u32) -> u32 { return (raw[byte / 4u] >> (byte % 4u * 8u)) & 0xffffu; }
fn load_u32(byte: u32) -> u32 {
  let word = byte / 4u;
  let shift = byte % 4u * 8u;
  if (shift == 0u) { return raw[word]; }
  return (raw[word] >> shift) | (raw[word + 1u] << (32u - shift));
}
fn load_vec4(byte: u32) -> vec4u {
  return vec4u(load_u32(byte), load_u32(byte + 4u), load_u32(byte + 8u), load_u32(byte + 12u));
}
