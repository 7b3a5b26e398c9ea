// Recodes pages of a layer as pages of a lower tier (py_core/paging/tiers.py). For keys, each channel over the
// positions, for values, each position over the channels: offset = min x, scale = (max x - min x) / most, both as
// halves, and codes = floor((x - offset) / scale + 1/2), within 0 .. most.
// Bindings: 0 jobs: (1 + MOST) vec2u: their number, then the page and the new page of each, as in the page table;
//           1 kv: the layer's hot pages; 2 demoted: the layer's demoted pages (tiers.wgsl).
// Constants: KV_HEADS, HEAD_DIM (a multiple of 4, up to WORKGROUP), PAGE, TIER_SHIFT, WORKGROUP (at least PAGE / 2).
// Dispatch (KV_HEADS, 2: keys and values, MOST).
@group(0) @binding(0) var<storage, read> jobs: array<vec2u>;
@group(0) @binding(1) var<storage, read> kv: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> demoted: array<u32>;
#import tiers

const QUADS = HEAD_DIM / 4u;
const PAIRS = PAGE / 2u;

var<workgroup> least: array<vec4f, WORKGROUP>;
var<workgroup> largest: array<vec4f, WORKGROUP>;

// Rounds a float to the nearest half, clamped to the largest. WGSL's own function may round differently, and lose
// subnormals.
fn half_of(x: f32) -> u32 {
  let size = min(abs(x), 65504.0);
  let bits = bitcast<u32>(size);
  let usual = ((bits + 0xfffu + ((bits >> 13u) & 1u)) >> 13u) - (112u << 10u);  // the exponents' biases differ by 112
  let subnormal = u32(round(size * 0x1p24));
  return select(usual, subnormal, size < 0x1p-14) | ((bitcast<u32>(x) >> 16u) & 0x8000u);
}

fn pair_of(page: u32, pair: u32, head: u32, which: u32, quad: u32) -> array<vec4f, 2> {
  return array<vec4f, 2>(floats_of(read_quad(page, 2u * pair, head, which, quad), which),
                         floats_of(read_quad(page, 2u * pair + 1u, head, which, quad), which));
}
fn least_of(x: vec4f) -> f32 { return min(min(x.x, x.y), min(x.z, x.w)); }
fn largest_of(x: vec4f) -> f32 { return max(max(x.x, x.y), max(x.z, x.w)); }

// A quad is processed together with the same quad of the next position. The `sharers` invocations have the scales of
// one line: the same quad of all pairs of positions for keys, all quads of a pair for values. Each handles every
// `sharers`th member.
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  if (group.z >= jobs[0].x) { return; }
  let page = jobs[1u + group.z].x;
  let new_page = jobs[1u + group.z].y;
  let head = group.x;
  let which = group.y;
  let lines = select(PAIRS, QUADS, which == 0u);
  let members = select(QUADS, PAIRS, which == 0u);
  let sharers = WORKGROUP / lines;
  let line = index % lines;
  let share = index / lines;
  let works = share < sharers;
  var low = vec4f(3e38);
  var high = vec4f(-3e38);
  for (var member = share; member < members && works; member += sharers) {
    let quad = select(member, line, which == 0u);
    let x = pair_of(page, select(line, member, which == 0u), head, which, quad);
    if (which == 0u) {
      low = min(low, min(x[0], x[1]));
      high = max(high, max(x[0], x[1]));
    } else {
      low = min(low, vec4f(vec2f(least_of(x[0]), least_of(x[1])), 0.0, 0.0));
      high = max(high, vec4f(vec2f(largest_of(x[0]), largest_of(x[1])), 0.0, 0.0));
    }
  }
  least[index] = low;
  largest[index] = high;
  workgroupBarrier();
  if (!works) { return; }
  for (var other = line; other < lines * sharers; other += lines) {
    low = min(low, least[other]);
    high = max(high, largest[other]);
  }

  let tier = tier_of(new_page);
  let place = head_place(new_page, head);
  let most = select(15.0, 127.0, tier == WARM);
  var factors = vec4f();
  var offsets = vec4f();
  for (var i = 0u; i < 4u; i++) {
    let offset = half_of(low[i]);
    offsets[i] = halves(offset).x;
    let scale = half_of(max(high[i] - offsets[i], 0.0) / most);
    if (halves(scale).x > 0.0) { factors[i] = 1.0 / halves(scale).x; }
    if (share != 0u) { continue; }
    if (which == 0u) {
      demoted[place + key_scales_at(tier, line) + i] = scale | (offset << 16u);
    } else if (i < 2u) {
      demoted[place + value_scale_at(tier, 2u * line + i)] = scale | (offset << 16u);
    }
  }
  for (var member = share; member < members; member += sharers) {
    let pair = select(line, member, which == 0u);
    let quad = select(member, line, which == 0u);
    let x = pair_of(page, pair, head, which, quad);
    var words = array<u32, 2>();
    for (var i = 0u; i < 2u; i++) {
      let own = which == 0u;
      let from_low = x[i] - select(vec4f(offsets[i]), offsets, own);
      let codes = vec4u(clamp(floor(from_low * select(vec4f(factors[i]), factors, own) + 0.5), vec4f(), vec4f(most)));
      let places = select(vec4u(1u, 1u << 4u, 1u << 8u, 1u << 12u), vec4u(1u, 1u << 8u, 1u << 16u, 1u << 24u), tier == WARM);
      words[i] = dot(codes, places);
    }
    if (tier == WARM) {
      demoted[place + codes_at(tier, which, 2u * pair, quad)] = words[0];
      demoted[place + codes_at(tier, which, 2u * pair + 1u, quad)] = words[1];
    } else {
      demoted[place + codes_at(tier, which, 2u * pair, quad)] = words[0] | (words[1] << 16u);
    }
  }
}
