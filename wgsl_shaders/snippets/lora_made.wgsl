// Each workgroup makes A x itself, for one row of x and the linears that its rows of W belong to, while W is on its way: that
// takes less time than another dispatch where W is small. Invocation RANK * q + i has every (WORKGROUP / RANK)-th quad of
// columns from q on, of row i of A. LORA_LANES of them add up their sums by shuffles, the others' are added up where they are
// read.
// Constants: LORA_LANES: a multiple of RANK, RANK itself where `reduce` would need a barrier.
#import lora_lanes
const LORA_SHARES = WORKGROUP / LORA_LANES;
const LORA_QUADS = WORKGROUP / RANK;
var<workgroup> lora_partial: array<f32, LORA_SHARES * LINEARS * RANK>;
fn lora_start(item: u32, m0: u32, index: u32) {
  let first = item - index / LANE_GROUP * ROW_TILES;
  let low = lora_linear(lora_row(first, 0u));
  let high = lora_linear(lora_row(first + LANE_GROUPS * ROW_TILES - 1u, ROWS - 1u));
  let a = lora_set() + LORA_A + index % RANK;
  for (var linear = 0u; linear < LINEARS; linear++) {
    var sum = 0.0;
    if (linear >= low && linear <= high) {
      for (var i = 0u; i < K / 4u; i += LORA_QUADS) {
        let quad = min(i + index / RANK, K / 4u - 1u);
        var values = x[m0 * (K / 4u) + quad];
        if (NORM) { values *= vectors[quad]; }
        let product = dot(lora[a + (linear * (K / 4u) + quad) * RANK], values);
        sum += select(0.0, product, i + index / RANK < K / 4u);
      }
    }
    for (var mask = RANK; mask < LORA_LANES; mask *= 2u) { sum += shuffle_xor(sum, mask, index); }
    if (index % LORA_LANES < RANK) {
      lora_partial[(index / LORA_LANES * LINEARS + linear) * RANK + index % RANK] = sum;
    }
  }
}
fn lora_column(linear: u32, m: u32, i: u32) -> f32 {
  var sum = 0.0;
  for (var share = 0u; share < LORA_SHARES; share++) { sum += lora_partial[(share * LINEARS + linear) * RANK + i]; }
  return sum;
}
