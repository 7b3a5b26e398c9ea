// Columns of x in workgroup memory, CHUNK blocks at a time: neighbouring invocations need neighbouring blocks, which
// are far apart in x. With NORM they are multiplied by the norm's weight while they are copied, and their squares are
// summed.
#import norm_squares
#import cached_columns
#import block_dot_floats
// A block of 8 quads, and one more, so that neighbouring blocks begin in different banks.
alias Column = array<vec4f, 9>;
var<workgroup> tile: array<Column, M_TILE * CHUNK>;
// Quads of a chunk that an invocation copies: it requests all of them before it stores the first.
const QUADS_PER_INVOCATION = (CHUNK * 8u + WORKGROUP - 1u) / WORKGROUP;

fn stage_columns(m0: u32, first: u32, index: u32) {
  if (first > 0u) { workgroupBarrier(); }
  arrive(first, index);
  let quads_there = min(CHUNK * 8u, K / 4u - first * 8u);
  for (var m = 0u; m < M_TILE; m++) {
    var sum = 0.0;
    var quads: array<vec4f, QUADS_PER_INVOCATION>;
    for (var q = 0u; q < QUADS_PER_INVOCATION; q++) {
      let i = min(index + q * WORKGROUP, quads_there - 1u);
      quads[q] = x[(m0 + m) * (K / 4u) + first * 8u + i];
      if (NORM) {
        sum += select(0.0, dot(quads[q], quads[q]), index + q * WORKGROUP < quads_there);
        quads[q] *= vectors[first * 8u + i];
      }
    }
    for (var q = 0u; q < QUADS_PER_INVOCATION; q++) {
      let i = index + q * WORKGROUP;
      if (i < quads_there) { tile[m * CHUNK + i / 8u][i % 8u] = quads[q]; }
    }
    add_squares(m, first, index, sum);
  }
  workgroupBarrier();
}

fn column_quad(m0: u32, m: u32, first: u32, i: u32, block: u32, w: u32) -> vec4f {
  if (ROW_TILES > 1u) { return cached[i * M_TILE + m][w]; }
  return tile[m * CHUNK + block - first][w];
}
