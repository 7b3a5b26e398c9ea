// Columns of x in workgroup memory, CHUNK blocks at a time: neighbouring invocations want neighbouring blocks, which
// lie far apart in x. With NORM they are multiplied by norm_weight on the way, and their squares added up.
#import norm_squares
#import block_dot_floats
const STRIDE = 9u;  // of a block of 8 quads: neighbouring blocks begin in other banks
var<workgroup> tile: array<vec4f, M_TILE * CHUNK * STRIDE>;

fn bring_columns(m0: u32, first: u32, index: u32) {
  if (first > 0u) { workgroupBarrier(); }
  let quads = min(CHUNK, K / 32u - first) * 8u;
  for (var m = 0u; m < M_TILE; m++) {
    var sum = 0.0;
    for (var i = index; i < quads; i += WORKGROUP) {
      var quad = x[(m0 + m) * (K / 4u) + first * 8u + i];
      if (NORM) {
        sum += dot(quad, quad);
        quad *= norm_weight[first * 8u + i];
      }
      tile[(m * CHUNK + i / 8u) * STRIDE + i % 8u] = quad;
    }
    add_squares(m, first, index, sum);
  }
  workgroupBarrier();
}

fn column_quad(m0: u32, m: u32, first: u32, block: u32, w: u32) -> vec4f {
  return tile[(m * CHUNK + block - first) * STRIDE + w];
}
