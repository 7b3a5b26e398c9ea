// A gated convolution within a pack. Needs pack, x: (MAX_ROWS, 3 * K / 4) vec4f of b, c and u, and weight: (K, TAPS).
// Constants: K (a multiple of 4), TAPS.
const QUADS = K / 4u;

// Returns the row at a distance before a row in its sequence, which continues the prefix; below 0 if there is none.
fn row_before(row: u32, distance: u32) -> i32 {
  let found = i32(row) - i32(distance);
  let start = i32(pack.rows[row].start);
  if (row >= pack.prefix && found < start) { return found - start + i32(pack.prefix); }
  return found;
}
fn tap(j: u32, quad: u32) -> vec4f {
  let at = 4u * quad * TAPS + j;
  return vec4f(weight[at], weight[at + TAPS], weight[at + 2u * TAPS], weight[at + 3u * TAPS]);
}
// Returns the sum over the taps of z = b * u.
fn convolved(row: u32, quad: u32) -> vec4f {
  var sum = vec4f();
  for (var j = 0u; j < TAPS; j++) {
    let other = row_before(row, TAPS - 1u - j);
    if (other < 0) { continue; }
    let at = u32(other) * 3u * QUADS + quad;
    sum += tap(j, quad) * x[at] * x[at + 2u * QUADS];
  }
  return sum;
}
