// s[m, i] = sum over j < TAPS of weight[i, j] * z[t - TAPS + 1 + j, i] for a row m at position t. With GATED, y = c * s and
// z = b * u for the thirds b, c, u of a row of x; otherwise y = silu(s) and z = x. z is 0 before the sequence.
// The rows of z are kept in the layer's pages, that of a page's position p at row p % ROWS.
// Bindings: 0 state; 1 x: (MAX_ROWS, 3 * K / 4, or K / 4) vec4f; 2 weight: (K, TAPS); 3 page_table; 4 kept: (pages, ROWS,
//           K / 4) vec4f; 5 y: (MAX_ROWS, K / 4) vec4f.
// Constants: K (a multiple of 4), TAPS, GATED, ROWS, PAGE, MAX_PAGES, WORKGROUP.
// One invocation goes through all rows for 4 channels, in order: a row finds those before it, which may be of the same
// pass, where the invocation has put them. Dispatch (ceil(K / 4 / WORKGROUP)).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> page_table: array<u32>;
@group(0) @binding(4) var<storage, read_write> kept: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4f>;

const QUADS = K / 4u;
const PAST = TAPS - 1u;
const PARTS = select(1u, 3u, GATED);

fn kept_at(slot: u32, position: u32) -> u32 {
  let page = page_table[slot * MAX_PAGES + position / PAGE];
  return (page * ROWS + position % PAGE % ROWS) * QUADS;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let quad = id.x;
  if (quad >= QUADS) { return; }
  var taps: array<vec4f, TAPS>;
  for (var j = 0u; j < TAPS; j++) {
    let at = 4u * quad * TAPS + j;
    taps[j] = vec4f(weight[at], weight[at + TAPS], weight[at + 2u * TAPS], weight[at + 3u * TAPS]);
  }
  // z of the positions before the row's; those of the row before move on, so that a prompt need not wait for memory.
  var past: array<vec4f, PAST>;
  var slot = 0u;
  var next = 0u;
  for (var m = 0u; m < state.count; m++) {
    let position = state.rows[m].position;
    if (m == 0u || state.rows[m].slot != slot || position != next) {
      slot = state.rows[m].slot;
      for (var j = 0u; j < PAST; j++) {
        past[j] = vec4f(0.0);
        if (position + j >= PAST) { past[j] = kept[kept_at(slot, position + j - PAST) + quad]; }
      }
    }
    let row = m * PARTS * QUADS + quad;
    var z = x[row];
    if (GATED) { z *= x[row + 2u * QUADS]; }
    kept[kept_at(slot, position) + quad] = z;
    var sum = taps[PAST] * z;
    for (var j = 0u; j < PAST; j++) { sum += taps[j] * past[j]; }
    if (GATED) { sum *= x[row + QUADS]; } else { sum /= 1.0 + exp(-sum); }
    y[m * QUADS + quad] = sum;
    for (var j = 0u; j + 1u < PAST; j++) { past[j] = past[j + 1u]; }
    past[PAST - 1u] = z;
    next = position + 1u;
  }
}
