// Four int8 as floats, like nibble_codes with all 8 bits.
fn signed_bytes(word: u32) -> vec4f {
  let raised = word ^ 0x80808080u;
  let bytes = vec4u(raised, raised, raised >> 16u, raised >> 16u) & vec4u(0xffu, 0xff00u, 0xffu, 0xff00u);
  let floats = bitcast<vec4f>(bytes | vec4u(0x4b000000u, 0x47000000u, 0x4b000000u, 0x47000000u));
  return floats - vec4f(0x1p23 + 128.0, 0x1p15 + 128.0, 0x1p23 + 128.0, 0x1p15 + 128.0);
}
