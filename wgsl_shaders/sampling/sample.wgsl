// Draws each row's token from softmax(logits / temperature), cut by top-k, then top-p, then min-p, by the row's own
// rules, and makes it the row's token of the next step. Rows with temperature 0 are left to argmax.wgsl.
// py_core/sampling.py does the same in numpy. Nothing is sorted: the thresholds of top-k and top-p are found by
// radix select, 8 bits of an order-preserving integer key at a time. Probabilities are fixed-point (1 = 2^30), so sums
// do not depend on the order of atomics, and a seed gives the same answer every time.
// Bindings: 0 state; 1 logits: (rows, VOCAB); 2 history: (slots, RING).
// Constants: VOCAB, RING, WORKGROUP (a power of two, at most 256). One workgroup per row; dispatch (rows).
#import state
@group(0) @binding(0) var<storage, read_write> state: State;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> history: array<u32>;
#import advance
#import pcg

const ONE = 1073741824.0;  // 2^30

struct Rules { top_k: u32, top_p: f32, min_p: f32, temperature: f32 }
var<workgroup> shared_rules: Rules;
var<private> first_logit: u32;  // of the row
var<workgroup> scratch: array<f32, WORKGROUP>;
var<workgroup> bins: array<atomic<u32>, 256>;
var<workgroup> selected: vec2u;  // (prefix of the threshold's key, amount still to find below it)
var<workgroup> shares: array<u32, WORKGROUP>;
var<workgroup> chosen: vec2u;    // (lane, remainder of the random number within its share)

fn logit_of(token: u32) -> f32 { return logits[first_logit + token]; }

// An integer with the order of the floats.
fn key_of(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

fn reduce_max(value: f32, lane: u32) -> f32 {
  scratch[lane] = value;
  for (var stride = WORKGROUP / 2u; stride > 0u; stride /= 2u) {
    workgroupBarrier();
    if (lane < stride) { scratch[lane] = max(scratch[lane], scratch[lane + stride]); }
  }
  workgroupBarrier();
  let result = scratch[0];
  workgroupBarrier();
  return result;
}

fn reduce_sum(value: f32, lane: u32) -> f32 {
  scratch[lane] = value;
  for (var stride = WORKGROUP / 2u; stride > 0u; stride /= 2u) {
    workgroupBarrier();
    if (lane < stride) { scratch[lane] += scratch[lane + stride]; }
  }
  workgroupBarrier();
  let result = scratch[0];
  workgroupBarrier();
  return result;
}

fn probability(value: f32, largest: f32, total: f32, temperature: f32) -> u32 {
  return u32(exp((value - largest) / temperature) / total * ONE);
}

// The largest key such that the tokens with it or a larger one reach `wanted`, counted as tokens (by_count) or as
// probability. Tokens with keys below `floor_key` do not count.
fn select_key(wanted: u32, by_count: bool, floor_key: u32, largest: f32, total: f32, temperature: f32, lane: u32) -> u32 {
  if (lane == 0u) { selected = vec2u(0u, wanted); }
  for (var pass_index = 0u; pass_index < 4u; pass_index++) {
    let shift = 24u - 8u * pass_index;
    for (var i = lane; i < 256u; i += WORKGROUP) { atomicStore(&bins[i], 0u); }
    workgroupBarrier();
    let prefix = selected.x;
    for (var i = lane; i < VOCAB; i += WORKGROUP) {
      let key = key_of(logit_of(i));
      // WGSL leaves a shift by 32 undefined, and the first pass has no bits above.
      if (key >= floor_key && (pass_index == 0u || (key >> ((shift + 8u) & 31u)) == prefix)) {
        let amount = select(probability(logit_of(i), largest, total, temperature), 1u, by_count);
        atomicAdd(&bins[(key >> shift) & 255u], amount);
      }
    }
    workgroupBarrier();
    if (lane == 0u) {
      var left = selected.y;
      var bin = 255u;
      while (bin > 0u && atomicLoad(&bins[bin]) < left) {
        left -= atomicLoad(&bins[bin]);
        bin--;
      }
      selected = vec2u((prefix << 8u) | bin, left);
    }
    workgroupBarrier();
  }
  let key = selected.x;
  workgroupBarrier();
  return key;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3u) {
  let r = group.x;
  first_logit = r * VOCAB;
  if (lane == 0u) {
    shared_rules = Rules(state.rows[r].top_k, state.rows[r].top_p, state.rows[r].min_p, state.rows[r].temperature);
  }
  let rules = workgroupUniformLoad(&shared_rules);
  if (rules.temperature == 0.0) { return; }

  var value = -1e30;
  for (var i = lane; i < VOCAB; i += WORKGROUP) { value = max(value, logit_of(i)); }
  let largest = reduce_max(value, lane);
  value = 0.0;
  for (var i = lane; i < VOCAB; i += WORKGROUP) { value += exp((logit_of(i) - largest) / rules.temperature); }
  let total = reduce_sum(value, lane);

  var floor_key = 0u;
  if (rules.top_k > 0u && rules.top_k < VOCAB) {
    floor_key = select_key(rules.top_k, true, 0u, largest, total, rules.temperature, lane);
  }
  if (rules.top_p < 1.0) {
    var kept = 0.0;
    for (var i = lane; i < VOCAB; i += WORKGROUP) {
      if (key_of(logit_of(i)) >= floor_key) { kept += f32(probability(logit_of(i), largest, total, rules.temperature)); }
    }
    let wanted = max(u32(rules.top_p * reduce_sum(kept, lane)), 1u);
    floor_key = max(floor_key, select_key(wanted, false, floor_key, largest, total, rules.temperature, lane));
  }

  // Inverts the cumulative distribution, in the order of ids: first find the lane whose run of tokens contains the
  // random number, then the token in that run.
  let run = (VOCAB + WORKGROUP - 1u) / WORKGROUP;
  let least = rules.min_p * f32(probability(largest, largest, total, rules.temperature));
  var share = 0u;
  for (var i = lane * run; i < min((lane + 1u) * run, VOCAB); i++) {
    let p = probability(logit_of(i), largest, total, rules.temperature);
    if (key_of(logit_of(i)) >= floor_key && f32(p) >= least) { share += p; }
  }
  shares[lane] = share;
  workgroupBarrier();
  if (lane == 0u) {
    var sum = 0u;
    for (var i = 0u; i < WORKGROUP; i++) { sum += shares[i]; }
    let position = state.rows[r].position + 1u;
    let random = f32(pcg(pcg(state.rows[r].seed) ^ position) >> 8u) / 16777216.0;
    var left = min(u32(random * f32(sum)), sum - 1u);
    var owner = 0u;
    while (left >= shares[owner]) {
      left -= shares[owner];
      owner++;
    }
    chosen = vec2u(owner, left);
  }
  workgroupBarrier();
  if (lane == chosen.x) {
    var left = chosen.y;
    for (var i = lane * run; i < min((lane + 1u) * run, VOCAB); i++) {
      let p = probability(logit_of(i), largest, total, rules.temperature);
      if (key_of(logit_of(i)) >= floor_key && f32(p) >= least) {
        if (left < p) {
          advance(r, i);
          return;
        }
        left -= p;
      }
    }
  }
}
