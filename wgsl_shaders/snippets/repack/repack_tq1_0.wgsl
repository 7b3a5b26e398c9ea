// TQ1_0: 32 bytes with five codes each for the first 160 values, 16 with five each for the next 80, 4 with four each for
// the last 16; half d. A byte is a fraction of 256, its codes are the digits in base 3.
const POWERS = array<u32, 5>(1u, 3u, 9u, 27u, 81u);
// Digit n of each byte of a word, in the lowest bits of the byte.
fn digits(word: u32, n: u32) -> u32 {
  var powers = POWERS;
  let bytes = (vec4u(word) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(0xffu);
  let codes = (((bytes * powers[n]) & vec4u(0xffu)) * 3u) >> vec4u(8u);
  return codes.x | (codes.y << 8u) | (codes.z << 16u) | (codes.w << 24u);
}
fn repack(source: u32, block: u32, count: u32) {
  let byte = source / 8u * BLOCK_BYTES;
  for (var pair = 0u; pair < 4u; pair++) {
    var words = vec4u();  // two of each of two blocks
    for (var part = 0u; part < 4u; part++) {
      let run16 = 4u * pair + part;  // values 16 * run16 and on
      var word = 0u;
      for (var w = 0u; w < 4u; w++) {
        var four = digits(load_u32(byte + 48u), w);
        if (run16 < 10u) {
          four = digits(load_u32(byte + run16 % 2u * 16u + 4u * w), run16 / 2u);
        } else if (run16 < 15u) {
          four = digits(load_u32(byte + 32u + 4u * w), run16 - 10u);
        }
        word |= four << (2u * w);
      }
      words[part] = word;
    }
    quants[block / 2u + pair] = words;
  }
  scales[run.supers + block / 8u] = load_u16(byte + 52u);
}
