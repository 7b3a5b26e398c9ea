// A x of one row of x is the sum of LORA_PARTS parts. The workgroups of the kernel that computed x have stored them
// (lora_next.wgsl) in the places of LORA_PARTS rows. This acts as if W had LORA_PARTS * RANK columns more: each lane of
// a lane group has a quad of columns (LORA_EACH of them if there are few lanes) of every LORA_STEP-th part. The sum
// over the lanes then also sums the parts. They are loaded before x and used at the very end: nothing waits for them.
// Constants: LORA_PARTS; LORA_GATED: the rows of an item are of the first linear, and as many of the second.
#import lora_matrices
const LORA = true;
const LORA_QUADS = RANK / 4u;
const LORA_WIDE = min(LORA_QUADS, LANE_GROUP);
const LORA_EACH = LORA_QUADS / LORA_WIDE;
const LORA_STEP = LANE_GROUP / LORA_WIDE;
const LORA_LOADS = (LORA_PARTS + LORA_STEP - 1u) / LORA_STEP;
const LORA_KINDS = select(1u, 2u, LORA_GATED);
alias LoraQuads = array<vec4f, LORA_EACH>;
alias LoraRows = array<LoraQuads, ROWS>;
var<private> lora_own: u32;  // the linear of the item's first row
var<private> lora_loaded: array<array<LoraQuads, LORA_LOADS>, LORA_KINDS>;
var<private> lora_sums: array<LoraQuads, LORA_KINDS>;
fn lora_row(item: u32, r: u32) -> u32 { return weight_row(item, r) - FIRST_ROW + LORA_FIRST; }
fn lora_quads(first: u32, lane: u32) -> LoraQuads {
  var quads: LoraQuads;
  for (var e = 0u; e < LORA_EACH; e++) { quads[e] = lora[first + e * LORA_WIDE + lane % LORA_WIDE]; }
  return quads;
}
// The lane's quads of its i-th part, zeros if there is none.
fn lora_part(i: u32, linear: u32, lane: u32) -> LoraQuads {
  let part = i * LORA_STEP + lane / LORA_WIDE;
  var quads = lora_quads((min(part, LORA_PARTS - 1u) * LINEARS + linear) * LORA_QUADS, lane);
  for (var e = 0u; e < LORA_EACH; e++) { quads[e] = select(vec4f(), quads[e], part < LORA_PARTS); }
  return quads;
}
fn lora_sum(parts: array<LoraQuads, LORA_LOADS>) -> LoraQuads {
  var loaded = parts;
  var sum: LoraQuads;
  for (var i = 0u; i < LORA_LOADS; i++) {
    for (var e = 0u; e < LORA_EACH; e++) { sum[e] += loaded[i][e]; }
  }
  return sum;
}
fn lora_parts_of(linear: u32, lane: u32) -> array<LoraQuads, LORA_LOADS> {
  var parts: array<LoraQuads, LORA_LOADS>;
  for (var i = 0u; i < LORA_LOADS; i++) { parts[i] = lora_part(i, linear, lane); }
  return parts;
}
fn lora_start(item: u32, m0: u32, index: u32) {
  lora_own = lora_linear(lora_row(item, 0u));
  for (var kind = 0u; kind < LORA_KINDS; kind++) {
    lora_loaded[kind] = lora_parts_of(lora_own + kind, index % LANE_GROUP);
  }
}
fn lora_ready() {
  for (var kind = 0u; kind < LORA_KINDS; kind++) { lora_sums[kind] = lora_sum(lora_loaded[kind]); }
}
fn lora_rows(item: u32, lane: u32) -> LoraRows {
  var rows: LoraRows;
  for (var r = 0u; r < ROWS; r++) { rows[r] = lora_quads(LORA_B / 4u + lora_row(item, r) * LORA_QUADS, lane); }
  return rows;
}
fn lora_term(rows: LoraRows, item: u32, r: u32, m: u32, index: u32) -> f32 {
  var b = rows;
  var sum = lora_sums[select(0u, r / max(1u, ROWS / 2u), LORA_GATED)];
  if (LINEARS > 1u && !LORA_GATED) {
    let linear = lora_linear(lora_row(item, r));
    // Only if another linear begins among the rows of this lane group.
    if (linear != lora_own) { sum = lora_sum(lora_parts_of(linear, index % LANE_GROUP)); }
  }
  var term = 0.0;
  for (var e = 0u; e < LORA_EACH; e++) { term += dot(b[r][e], sum[e]); }
  return term;
}
