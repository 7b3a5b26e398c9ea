// y[m, :] = c * conv(b * u), the gated convolution of short_conv.wgsl within a pack, for the thirds b, c, u of a row of x.
// Bindings: 0 pack; 1 x: (MAX_ROWS, 3 * K / 4) vec4f; 2 weight: (K, TAPS); 3 y: (MAX_ROWS, K / 4) vec4f.
// Constants: those of pack_conv.wgsl, WORKGROUP. One invocation makes 4 values; dispatch (ceil(K / 4 / WORKGROUP), count).
#import pack
@group(0) @binding(0) var<storage, read> pack: Pack;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4f>;
#import pack_conv

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= pack.count || id.x >= QUADS) { return; }
  y[id.y * QUADS + id.x] = x[id.y * 3u * QUADS + QUADS + id.x] * convolved(id.y, id.x);
}
