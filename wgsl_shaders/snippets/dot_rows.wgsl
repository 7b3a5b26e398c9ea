// The dot products of ROWS rows of W and M_TILE rows of x, shared by LANES invocations: each takes every LANES-th block of
// 32 columns. With NORM x is normalized by RMS.
// Needs quants, scales, x (MAX_ROWS, K / 4) vec4f, norm_weight (K / 4) vec4f, weight_row(item, r); `columns` is x_direct,
// x_staged or x_digits: what brings CHUNK blocks of x and multiplies one by blocks of W. A format gives load_block and the
// block's codes, where value = scale[half] * code + offset; OFFSETS says whether any offset is not 0.
// Constants K, LANES, M_TILE, ROWS, NORM, EPS, WORKGROUP; CHUNK: blocks of x that are at hand together.
#import dequantize
#import reduce
#import columns

alias Sums = array<array<f32, M_TILE>, ROWS>;
const PER_LANE = (CHUNK + LANES - 1u) / LANES;

fn dot_rows(item: u32, m0: u32, index: u32) -> Sums {
  var sums = Sums();
  let lane = index % LANES;
  for (var first = 0u; first < K / 32u; first += CHUNK) {
    // A chunk's weights are on their way while its columns of x are being brought.
    var blocks: array<array<Block, ROWS>, PER_LANE>;
    for (var i = 0u; i < PER_LANE; i++) {
      let block = min(first + i * LANES + lane, K / 32u - 1u);
      for (var r = 0u; r < ROWS; r++) { blocks[i][r] = load_block(weight_row(item, r) * (K / 32u) + block); }
    }
    bring_columns(m0, first, index);
    for (var i = 0u; i < PER_LANE; i++) {
      let block = first + i * LANES + lane;
      if (block >= min(first + CHUNK, K / 32u)) { continue; }
      var products = block_dot(blocks[i], m0, first, block);
      for (var r = 0u; r < ROWS; r++) {
        for (var m = 0u; m < M_TILE; m++) { sums[r][m] += products[r][m]; }
      }
    }
  }
  for (var m = 0u; m < M_TILE; m++) {
    let scale = norm_scale(m, index);
    for (var r = 0u; r < ROWS; r++) { sums[r][m] = reduce_lanes(sums[r][m], index) * scale; }
  }
  return sums;
}
