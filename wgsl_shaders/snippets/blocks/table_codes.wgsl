// Blocks of 4-bit codes for the 16 values of TABLE, as int8, four a word (formats/quantization/blocks.py).
#import signed_bytes
const OFFSETS = false;
const TWO_SCALES = false;
struct Block { nibbles: vec4u, scale: vec2f, offset: vec2f }
// For each byte, the value whose code is in its low nibble. Each group of four bytes has four of the values.
fn table_values(codes: vec4u) -> vec4u {
  var values = vec4u();
  for (var byte = 0u; byte < 32u; byte += 8u) {
    let code = codes >> vec4u(byte);
    let first = select(vec4u(TABLE.x), vec4u(TABLE.y), (code & vec4u(4u)) != vec4u(0u));
    let last = select(vec4u(TABLE.z), vec4u(TABLE.w), (code & vec4u(4u)) != vec4u(0u));
    let four = select(first, last, (code & vec4u(8u)) != vec4u(0u));
    values |= ((four >> ((code & vec4u(3u)) * 8u)) & vec4u(0xffu)) << vec4u(byte);
  }
  return values;
}
fn codes8(b: Block, w: u32) -> array<vec4f, 2> {
  let word = b.nibbles[w];
  let values = table_values(vec4u(word, word >> 4u, 0u, 0u));
  return array<vec4f, 2>(signed_bytes(values.x), signed_bytes(values.y));
}
const UNIT = 1.0;
const MIDDLE = 0.0;
fn packed_codes(b: Block) -> array<vec4u, 2> {
  return array<vec4u, 2>(table_values(b.nibbles), table_values(b.nibbles >> vec4u(4u)));
}
