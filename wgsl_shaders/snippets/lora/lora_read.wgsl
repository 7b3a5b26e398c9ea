// The products of several rows of x with B, as if W had RANK columns more: each lane has every LANE_GROUP-th of them.
// lora_down.wgsl computes A x.
#import lora_matrices
const LORA = true;
const LORA_EACH = (RANK + LANE_GROUP - 1u) / LANE_GROUP;
alias LoraRows = array<array<f32, LORA_EACH>, ROWS>;
fn lora_row(item: u32, r: u32) -> u32 { return weight_row(item, r) - FIRST_ROW + LORA_FIRST; }
fn lora_rows(item: u32, lane: u32) -> LoraRows {
  var rows: LoraRows;
  for (var r = 0u; r < ROWS; r++) {
    for (var e = 0u; e < LORA_EACH; e++) {
      rows[r][e] = lora_at(LORA_B + lora_row(item, r) * RANK + min(e * LANE_GROUP + lane, RANK - 1u));
    }
  }
  return rows;
}
fn lora_term(rows: LoraRows, item: u32, r: u32, m: u32, index: u32) -> f32 {
  let linear = lora_linear(lora_row(item, r));
  var sum = 0.0;
  for (var e = 0u; e < LORA_EACH; e++) {
    let i = e * LANE_GROUP + index % LANE_GROUP;
    if (i < RANK) { sum += rows[r][e] * lora_column(linear, m, i); }
  }
  return sum;
}
var<private> lora_m0: u32;
fn lora_start(item: u32, m0: u32, index: u32) { lora_m0 = m0; }
fn lora_ready() {}
fn lora_column(linear: u32, m: u32, i: u32) -> f32 {
  return lora_at(((lora_m0 + m) * LINEARS + linear) * RANK + i);
}
