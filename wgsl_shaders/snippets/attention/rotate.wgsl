// A quad (4 values) of a head, rotated by the angles of its position. The first 2 PAIRS values of a head rotate; the
// others stay as they are.
// Needs angles: (positions, PAIRS) of (cos, sin), any buffer if PAIRS is 0; head_quad(head, quad): a head's quad before
// the rotation.
// Constants: HEAD_DIM, PAIRS; INTERLEAVED: pairs are (2i, 2i + 1), otherwise (i, i + PAIRS).
fn rotated(head: u32, quad: u32, position: u32) -> vec4f {
  let own = head_quad(head, quad);
  if (PAIRS == 0u || (2u * PAIRS < HEAD_DIM && quad * 4u >= 2u * PAIRS)) { return own; }
  let row = position * PAIRS;
  if (INTERLEAVED) {
    let a = angles[row + quad * 2u];
    let turned = vec2f(own.x * a.x - own.y * a.y, own.x * a.y + own.y * a.x);
    if (PAIRS % 2u == 1u && quad * 2u + 1u == PAIRS) { return vec4f(turned, own.zw); }
    let b = angles[row + quad * 2u + 1u];
    return vec4f(turned, own.z * b.x - own.w * b.y, own.z * b.y + own.w * b.x);
  }
  if (PAIRS % 4u == 0u) {
    const QUARTER = PAIRS / 4u;
    let first = quad < QUARTER;
    let partner = head_quad(head, select(quad - QUARTER, quad + QUARTER, first));
    let signed_partner = select(partner, -partner, first);
    var out: vec4f;
    for (var i = 0u; i < 4u; i++) {
      let a = angles[row + (quad * 4u + i) % max(PAIRS, 1u)];
      out[i] = own[i] * a.x + signed_partner[i] * a.y;
    }
    return out;
  }
  var out = own;
  for (var i = 0u; i < 4u && quad * 4u + i < 2u * PAIRS; i++) {
    let n = quad * 4u + i;
    let first = n < PAIRS;
    let other = select(n - PAIRS, n + PAIRS, first);
    let partner = head_quad(head, other / 4u)[other % 4u];
    let a = angles[row + n % max(PAIRS, 1u)];
    out[i] = own[i] * a.x + select(partner, -partner, first) * a.y;
  }
  return out;
}
