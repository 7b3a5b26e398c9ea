// For a kernel that computes one row of x: each workgroup stores its part of A x, the sum over its own NEXT_TILE values
// of x, for the kernel of the linears that read x (lora_parts.wgsl). Another dispatch would cost more than all this.
// `next`: the buffer of those linears (lora_matrices.wgsl). Invocation NEXT_ROWS * share + row has NEXT_EACH columns of
// a row of A.
// Constants: RANK; NEXT_LINEARS; NEXT_K: the width of x; NEXT_TILE; NEXT_SHARES, which divides it; NEXT_A: the start of
// A;
// WORKGROUP, at least NEXT_ROWS * NEXT_SHARES.
#import lora_next_binding
const NEXT = true;
const NEXT_ROWS = NEXT_LINEARS * RANK;
const NEXT_EACH = NEXT_TILE / NEXT_SHARES;
alias NextColumns = array<f32, NEXT_EACH>;
var<workgroup> next_values: array<f32, NEXT_TILE>;
var<workgroup> next_sums: array<f32, select(1u, NEXT_ROWS * NEXT_SHARES, NEXT_SHARES > 1u)>;
// A's columns for values from `first` on.
fn next_columns(first: u32, index: u32) -> NextColumns {
  let own = min(index, NEXT_ROWS * NEXT_SHARES - 1u);
  let row = own % NEXT_ROWS;
  let column = first + own / NEXT_ROWS * NEXT_EACH;
  let at = NEXT_A + (row / RANK * NEXT_K + column) * RANK + row % RANK;
  var columns: NextColumns;
  for (var i = 0u; i < NEXT_EACH; i++) { columns[i] = next[at + i * RANK]; }
  return columns;
}
// The workgroup's i-th value.
fn next_value(i: u32, value: f32) { next_values[i] = value; }
fn next_part(part: u32, columns: NextColumns, index: u32) {
  workgroupBarrier();
  var sum = 0.0;
  let share = min(index / NEXT_ROWS, NEXT_SHARES - 1u);
  for (var i = 0u; i < NEXT_EACH; i++) { sum += columns[i] * next_values[share * NEXT_EACH + i]; }
  if (NEXT_SHARES > 1u) {
    if (index < NEXT_ROWS * NEXT_SHARES) { next_sums[index] = sum; }
    workgroupBarrier();
    sum = 0.0;
    for (var s = 0u; s < NEXT_SHARES; s++) { sum += next_sums[s * NEXT_ROWS + index % NEXT_ROWS]; }
  }
  if (index < NEXT_ROWS) { next[part * NEXT_ROWS + index] = sum; }
}
