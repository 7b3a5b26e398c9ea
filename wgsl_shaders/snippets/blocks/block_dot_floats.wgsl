// Adds the products of a block of ROWS rows of W with its columns of M_TILE rows of x, in floats.
// Needs codes8(block, w): the codes of values 4w..4w+3 and 16+4w..16+4w+3, w < 4, of a format; and column_quad(m0, m,
// first, i, block, w): values 4w..4w+3 of a block of x.
fn add_block(blocks: array<Block, ROWS>, i: u32, m0: u32, first: u32, block: u32, sums: ptr<function, Sums>) {
  var weights = blocks;
  var dots = array<array<vec2f, M_TILE>, ROWS>();
  var totals = array<vec2f, M_TILE>();
  for (var w = 0u; w < 4u; w++) {
    var codes: array<array<vec4f, 2>, ROWS>;
    for (var r = 0u; r < ROWS; r++) { codes[r] = codes8(weights[r], w); }
    for (var m = 0u; m < M_TILE; m++) {
      let low = column_quad(m0, m, first, i, block, w);
      let high = column_quad(m0, m, first, i, block, w + 4u);
      if (OFFSETS && TWO_SCALES) {
        totals[m] += vec2f(dot(low, vec4f(1.0)), dot(high, vec4f(1.0)));
      } else if (OFFSETS) {
        totals[m].x += dot(low + high, vec4f(1.0));
      }
      for (var r = 0u; r < ROWS; r++) { dots[r][m] += vec2f(dot(codes[r][0], low), dot(codes[r][1], high)); }
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    for (var m = 0u; m < M_TILE; m++) {
      var product = dot(weights[r].scale, dots[r][m]) + weights[r].offset.x * totals[m].x;
      if (OFFSETS && TWO_SCALES) { product += weights[r].offset.y * totals[m].y; }
      (*sums)[r * M_TILE + m] += product;
    }
  }
}
