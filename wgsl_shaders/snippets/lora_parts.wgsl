// A x of one row of x is the sum of LORA_PARTS parts, which the workgroups of the kernel that made x have left
// (lora_next.wgsl) in the places of so many rows. A workgroup loads them before x and adds them up after it has x:
// otherwise x would wait for them. Invocation RANK * p + i has every LORA_STEP-th part from p on of column i.
// Constants: LORA_PARTS; LORA_LANES: how many invocations add up by shuffles, a multiple of RANK, RANK for none.
#import lora_lanes
const LORA_SHARED = true;
const LORA_STEP = WORKGROUP / RANK;
const LORA_LOADS = (LORA_PARTS + LORA_STEP - 1u) / LORA_STEP;
const LORA_SHARES = WORKGROUP / LORA_LANES;
var<private> lora_loaded: array<array<f32, LORA_LOADS>, LINEARS>;
var<workgroup> lora_sums: array<f32, LORA_SHARES * LINEARS * RANK>;
fn lora_start(item: u32, m0: u32, index: u32) {
  let first = item - index / LANE_GROUP * ROW_TILES;
  let low = lora_linear(lora_row(first, 0u));
  let high = lora_linear(lora_row(first + LANE_GROUPS * ROW_TILES - 1u, ROWS - 1u));
  for (var linear = 0u; linear < LINEARS; linear++) {
    if (linear < low || linear > high) { continue; }
    for (var i = 0u; i < LORA_LOADS; i++) {
      let part = i * LORA_STEP + index / RANK;
      let loaded = lora_at((min(part, LORA_PARTS - 1u) * LINEARS + linear) * RANK + index % RANK);
      lora_loaded[linear][i] = select(0.0, loaded, part < LORA_PARTS);
    }
  }
}
fn lora_share(index: u32) {
  for (var linear = 0u; linear < LINEARS; linear++) {
    var sum = 0.0;
    for (var i = 0u; i < LORA_LOADS; i++) { sum += lora_loaded[linear][i]; }
    for (var mask = RANK; mask < LORA_LANES; mask *= 2u) { sum += shuffle_xor(sum, mask, index); }
    if (index % LORA_LANES < RANK) {
      lora_sums[(index / LORA_LANES * LINEARS + linear) * RANK + index % RANK] = sum;
    }
  }
}
fn lora_column(linear: u32, m: u32, i: u32) -> f32 {
  var sum = 0.0;
  for (var share = 0u; share < min(LORA_SHARES, (LORA_PARTS * RANK + LORA_LANES - 1u) / LORA_LANES); share++) {
    sum += lora_sums[(share * LINEARS + linear) * RANK + i];
  }
  return sum;
}
