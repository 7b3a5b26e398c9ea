// y[m, Y_OFFSET + n] = sum_k W[n, k] x[m, k] + bias[n], for few rows m. With NORM, x is normalized by RMS first.
// EPILOGUE 0 stores the sum; 1 adds it to y (the residual); 2 stores activation(sum of row n) * (sum of row N + n),
// with 2 N rows in W (a gated linear unit).
// Bindings: 0 state; 1 quants and 2 scales of W: rows of K values in blocks of 32; 3 x: (MAX_ROWS, K / 4) vec4f, or its
//           limbs (x_limbs_read.wgsl); 4 vectors: the norm's weight (K,), with NORM, and from BIAS_AT on the bias of
//           each row of W, with ADD_BIAS; any buffer without both; 5 y: (MAX_ROWS, Y_STRIDE).
// Constants: K, N, BLOCKS (of W), Y_STRIDE, Y_OFFSET, EPILOGUE, ADD_BIAS, BIAS_AT, WORKGROUP; FIRST_ROW: the row of W
// that makes n = 0; GELU: the activation is gelu, otherwise silu; CAP: sums become CAP * tanh(sum / CAP) at the end, 0
// for no cap; those of dot_rows.wgsl (with EPILOGUE 2 ROWS is even);
// LOGITS: only the last rows of x are read, those that need logits; they make rows 0, 1 ... of y. SINGLE_ROW: the state
// has one row, so no invocation waits for its count.
// `lora_next`: an adapter's output for the linears that read y.
// Dispatch (g, h, ceil(rows of x / M_TILE)) with g * h * lane groups of a workgroup * ROW_TILES >= items of ROWS rows
// of W.
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> quants: array<vec4u>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
#import x_binding
@group(0) @binding(4) var<storage, read> vectors: array<vec4f>;
#import y_binding
#import dot_rows
#import bias
#import activation
#import lora_next

const OUTPUTS_PER_ITEM = select(ROWS, ROWS / 2u, EPILOGUE == 2u);  // rows of y of an item

fn place(item: u32, m0: u32, output: Output) -> u32 {
  let m = select(min(m0 + output.m, MAX_ROWS - 1u), 0u, SINGLE_ROW);
  return m * Y_STRIDE + Y_OFFSET + min(item * OUTPUTS_PER_ITEM + output.row, N - 1u);
}

fn weight_row(item: u32, r: u32) -> u32 {
  if (EPILOGUE == 2u) {
    return FIRST_ROW + min(item * OUTPUTS_PER_ITEM + r % OUTPUTS_PER_ITEM, N - 1u) + r / OUTPUTS_PER_ITEM * N;
  }
  return FIRST_ROW + min(item * ROWS + r, N - 1u);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  var count = 1u;
  let m0 = group.z * M_TILE;
  var first_row = m0;
  if (!SINGLE_ROW) {
    count = select(state.count, state.logit_rows, LOGITS);
    if (m0 >= count) { return; }
    if (LOGITS && !LIMBS_MADE) { first_row += state.count - count; }
  }
  let item = first_item(group.y * groups.x + group.x, index);
  const GROUP_OUTPUTS = LANE_GROUPS * ROW_TILES * OUTPUTS_PER_ITEM;
  let next_ahead = next_columns(group.x * GROUP_OUTPUTS, index);
  // y and biases are read before the sums are computed, so that nothing waits for them later.
  var before: array<f32, OUTPUTS_PER_LANE>;
  if (EPILOGUE == 1u) {
    for (var o = 0u; o < OUTPUTS_PER_LANE; o++) { before[o] = y_at(place(item, m0, output_of(o, index))); }
  }
  var biases: LaneOutputs;
  if (ADD_BIAS) {
    for (var o = 0u; o < OUTPUTS_PER_LANE; o++) {
      let n = min(item * OUTPUTS_PER_ITEM + output_of(o, index).row, N - 1u);
      for (var v = 0u; v < SUMS_PER_OUTPUT; v++) { biases[o][v] = bias_of(n + v * N); }
    }
  }
  var sums = dot_rows(item, first_row, index);
  for (var o = 0u; o < OUTPUTS_PER_LANE; o++) {
    let output = output_of(o, index);
    if (!output.exists || m0 + output.m >= count || item * OUTPUTS_PER_ITEM + output.row >= N) { continue; }
    if (ADD_BIAS) {
      for (var v = 0u; v < SUMS_PER_OUTPUT; v++) { sums[o][v] += biases[o][v]; }
    }
    var value = sums[o][0];
    if (EPILOGUE == 1u) { value += before[o]; }
    if (EPILOGUE == 2u) { value = activation(value) * sums[o][SUMS_PER_OUTPUT - 1u]; }
    if (CAP > 0.0) { value = CAP * tanh_of(value / CAP); }
    store_y(place(item, m0, output), value);
    if (NEXT) { next_value(index / LANE_GROUP * ROW_TILES * OUTPUTS_PER_ITEM + output.row, value); }
  }
  if (NEXT) { next_part(group.x, next_ahead, index); }
}
