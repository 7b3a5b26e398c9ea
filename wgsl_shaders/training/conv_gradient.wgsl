// The gradient dx of x for y = c * conv(b * u) of packed_conv.wgsl: dc = dy * conv(b * u), db = dz * u, du = dz * b. dz of a
// row is the sum over the rows that read it: it is collected where db comes.
// Bindings: 0 pack; 1 x: (MAX_ROWS, 3 * K / 4) vec4f; 2 weight: (K, TAPS); 3 dy: (MAX_ROWS, K / 4) vec4f; 4 dx: as x.
// Constants: those of pack_conv.wgsl, WORKGROUP. One invocation goes through all rows for 4 channels. Dispatch
// (ceil(K / 4 / WORKGROUP)).
#import pack
@group(0) @binding(0) var<storage, read> pack: Pack;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> dy: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> dx: array<vec4f>;
#import pack_conv

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let quad = id.x;
  if (quad >= QUADS) { return; }
  for (var m = 0u; m < pack.count; m++) { dx[m * 3u * QUADS + quad] = vec4f(); }
  for (var m = 0u; m < pack.count; m++) {
    let gate = m * 3u * QUADS + QUADS + quad;
    let own = dy[m * QUADS + quad];
    dx[gate] = own * convolved(m, quad);
    for (var j = 0u; j < TAPS; j++) {
      let other = row_before(m, TAPS - 1u - j);
      if (other >= 0) { dx[u32(other) * 3u * QUADS + quad] += tap(j, quad) * own * x[gate]; }
    }
  }
  for (var m = 0u; m < pack.count; m++) {
    let at = m * 3u * QUADS + quad;
    let dz = dx[at];
    dx[at] = dz * x[at + 2u * QUADS];
    dx[at + 2u * QUADS] = dz * x[at];
  }
}
