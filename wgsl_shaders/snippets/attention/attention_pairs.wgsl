// Products between a workgroup's 32 own rows and 32 other rows of a head, by 128 invocations: each has the own rows r,
// r + 8, r + 16, r + 24 (r = index % 8), as a vec4f, and the others c and c + 16 (c = index / 8).
// Needs own_quad(which, row, quad) and other_quad(which, row, quad) of the matrices `which`, zeros for rows that do not
// exist.
// Constants: HEAD_DIM (a multiple of 4).
const QUADS = HEAD_DIM / 4u;
const STRIDE = 9u;  // quads from one row of 8 to the next: neighbouring rows lie in different banks
var<workgroup> tile: array<vec4f, 576>;    // 8 quads each of 32 own and 32 other rows; or 16 of 32 other rows
var<workgroup> shares: array<vec4f, 256>;  // [other 32][own 8]

// Values of the four own rows with the other c, and with c + 16.
struct Pair { low: vec4f, high: vec4f }

fn own_or_zeros(which: u32, row: u32, quad: u32) -> vec4f {
  if (quad >= QUADS) { return vec4f(); }
  return own_quad(which, row, quad);
}
fn other_or_zeros(which: u32, row: u32, quad: u32) -> vec4f {
  if (quad >= QUADS) { return vec4f(); }
  return other_quad(which, row, quad);
}

fn dots(which: u32, own0: u32, other0: u32, index: u32) -> Pair {
  let r = index % 8u;
  let c = index / 8u;
  var low = vec4f();
  var high = vec4f();
  for (var first = 0u; first < QUADS; first += 8u) {
    workgroupBarrier();
    tile[c * STRIDE + r] = own_or_zeros(which, own0 + c, first + r);
    tile[(c + 16u) * STRIDE + r] = own_or_zeros(which, own0 + c + 16u, first + r);
    tile[(c + 32u) * STRIDE + r] = other_or_zeros(which, other0 + c, first + r);
    tile[(c + 48u) * STRIDE + r] = other_or_zeros(which, other0 + c + 16u, first + r);
    workgroupBarrier();
    for (var i = 0u; i < 8u; i++) {
      let a = tile[(32u + c) * STRIDE + i];
      let b = tile[(48u + c) * STRIDE + i];
      let own0 = tile[r * STRIDE + i];
      let own1 = tile[(r + 8u) * STRIDE + i];
      let own2 = tile[(r + 16u) * STRIDE + i];
      let own3 = tile[(r + 24u) * STRIDE + i];
      low += vec4f(dot(own0, a), dot(own1, a), dot(own2, a), dot(own3, a));
      high += vec4f(dot(own0, b), dot(own1, b), dot(own2, b), dot(own3, b));
    }
  }
  return Pair(low, high);
}

// Quad `first` + c of the sums of the own rows r, r + 8, r + 16, r + 24.
alias Sums = array<vec4f, 4>;
fn scaled(sums: Sums, by: vec4f) -> Sums { return Sums(sums[0] * by.x, sums[1] * by.y, sums[2] * by.z, sums[3] * by.w); }

// Adds the 32 other rows, each times its weight for an own row.
fn weighted(before: Sums, which: u32, other0: u32, first: u32, weights: Pair, index: u32) -> Sums {
  let r = index % 8u;
  let c = index / 8u;
  var sums = before;
  workgroupBarrier();
  shares[index] = weights.low;
  shares[index + 128u] = weights.high;
  for (var i = index; i < 512u; i += 128u) { tile[i] = other_or_zeros(which, other0 + i / 16u, first + i % 16u); }
  workgroupBarrier();
  for (var other = 0u; other < 32u; other++) {
    let weight = shares[other * 8u + r];
    let value = tile[other * 16u + c];
    sums[0] += weight.x * value;
    sums[1] += weight.y * value;
    sums[2] += weight.z * value;
    sums[3] += weight.w * value;
  }
  return sums;
}
