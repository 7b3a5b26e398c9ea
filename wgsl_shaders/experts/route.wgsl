// The likeliest experts of each row: their numbers, as floats, then their shares of softmax(x), which are divided by
// their sum if NORMALIZED.
// Bindings: 0 state; 1 x: (MAX_ROWS, EXPERTS); 2 y: (MAX_ROWS, 2 * USED).
// Constants: EXPERTS, USED, NORMALIZED, WORKGROUP. Dispatch (count).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> logits: array<f32, EXPERTS>;
var<workgroup> shares: array<f32, EXPERTS>;  // not yet divided, 0 for what does not count
var<workgroup> places: array<u32, EXPERTS>;  // the number of experts that are likelier

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m = group.x;
  if (m >= state.count) { return; }
  for (var e = index; e < EXPERTS; e += WORKGROUP) { logits[e] = x[m * EXPERTS + e]; }
  workgroupBarrier();
  for (var e = index; e < EXPERTS; e += WORKGROUP) {
    var place = 0u;
    var largest = logits[0];
    for (var i = 0u; i < EXPERTS; i++) {
      place += select(0u, 1u, logits[i] > logits[e] || (logits[i] == logits[e] && i < e));
      largest = max(largest, logits[i]);
    }
    places[e] = place;
    shares[e] = select(0.0, exp(logits[e] - largest), !NORMALIZED || place < USED);
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < EXPERTS; i++) { total += shares[i]; }
  for (var e = index; e < EXPERTS; e += WORKGROUP) {
    if (places[e] < USED) {
      y[m * 2u * USED + places[e]] = f32(e);
      y[m * 2u * USED + USED + places[e]] = shares[e] / total;
    }
  }
}
