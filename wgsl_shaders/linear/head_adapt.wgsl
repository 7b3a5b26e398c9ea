// y = norm(x) of rows and, in near, the weights of each row's neighbours, softmax(cosine(y, state) / temperature), if the
// largest cosine is at least tau.
// Bindings: 0 state; 1 weight: the norm's (K / 4,) vec4f; 2 x: (MAX_ROWS, K / 4) vec4f; 3 slots and 5 near as in
//           head_slots.wgsl; 4 y: (rows, K / 4) vec4f.
// Constants: K, EPS, LANES, WORKGROUP (a multiple of LANES, at least MOST_NEIGHBOURS); SCORED: all of the state's rows
// are read, and a row's slot is its row of x; otherwise only the last rows, which need logits.
// One workgroup per row; dispatch (rows).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> weight: array<vec4f>;
@group(0) @binding(2) var<storage, read> x: array<vec4f>;
@group(0) @binding(3) var<storage, read> slots: array<vec4u>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> near: array<f32>;
#import reduce
#import head_slots

const QUADS = K / 4u;
const LANE_GROUPS = WORKGROUP / LANES;
var<workgroup> inner: array<f32, MOST_NEIGHBOURS>;  // products, then weights
var<workgroup> halves: array<f32, MOST_NEIGHBOURS>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let rows = select(state.logit_rows, state.count, SCORED);
  if (group.x >= rows) { return; }
  let of_state = select(state.count - rows, 0u, SCORED) + group.x;
  let from_quad = select(of_state, state.rows[of_state].slot, SCORED) * QUADS;
  let to_quad = group.x * QUADS;
  let number = state.rows[of_state].head_adapter;
  let lane = index % LANES;

  var squares = 0.0;
  for (var i = lane; i < QUADS; i += LANES) { squares += dot(x[from_quad + i], x[from_quad + i]); }
  let scale = inverseSqrt(reduce_lanes(squares, index) / f32(K) + EPS);
  for (var i = index; i < QUADS; i += WORKGROUP) { y[to_quad + i] = x[from_quad + i] * scale * weight[i]; }
  if (index == 0u) { near[group.x * NEAR] = 0.0; }
  if (number == 0u) { return; }
  storageBarrier();

  let slot = slot_of(number);
  let count = slot_count(slot);
  for (var first = 0u; first < count; first += LANE_GROUPS) {
    let row = first + index / LANES;
    var sum = 0.0;
    for (var i = lane; i < QUADS; i += LANES) { sum += dot(y[to_quad + i], slot_quad(slot, min(row, count - 1u), i)); }
    sum = reduce_lanes(sum, index);
    if (lane == 0u && row < count) { inner[row] = sum; }
  }
  workgroupBarrier();

  var length = 0.0;
  for (var i = lane; i < QUADS; i += LANES) { length += dot(y[to_quad + i], y[to_quad + i]); }
  length = sqrt(reduce_lanes(length, index));
  // One invocation per neighbour: the largest cosine, then the sum of the weights, by halving.
  var cosine = -2.0;
  if (index < count) { cosine = inner[index] * select(0.0, 1.0 / length, length > 0.0); }
  if (index < MOST_NEIGHBOURS) { halves[index] = cosine; }
  workgroupBarrier();
  for (var left = MOST_NEIGHBOURS / 2u; left > 0u; left /= 2u) {
    if (index < left) { halves[index] = max(halves[index], halves[index + left]); }
    workgroupBarrier();
  }
  let largest = halves[0];
  var share = 0.0;
  if (index < count) { share = exp((cosine - largest) / bitcast<f32>(slots[slot].w)); }
  if (index < MOST_NEIGHBOURS) { inner[index] = share; }
  workgroupBarrier();
  for (var left = MOST_NEIGHBOURS / 2u; left > 0u; left /= 2u) {
    if (index < left) { inner[index] += inner[index + left]; }
    workgroupBarrier();
  }
  if (!(largest >= bitcast<f32>(slots[slot].z))) { return; }
  if (index == 0u) { near[group.x * NEAR] = f32(number); }
  if (index < count) { near[group.x * NEAR + 1u + index] = share / inner[0]; }
}
