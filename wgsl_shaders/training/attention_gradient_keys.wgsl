// dk[t, g] = sum_m,h ds[m, t] q[m, h] and dv[t, g] = sum_m,h p[m, t] dout[m, h] over the rows m that see t and the
// heads h that read g. p and ds are the attention weights and the gradient of the scores of packed_attention.wgsl,
// recomputed. A workgroup handles 32 keys of a head, iterates over its query heads and tiles of 32 rows, and computes
// 64 columns.
// Bindings: 0 pack; 1 q: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 k and 3 v: (MAX_ROWS, KV_HEADS * HEAD_DIM / 4)
//           vec4f; 4 dout: as q; 5 stats: (MAX_ROWS, HEADS) vec2f; 6 dk and 7 dv: as k.
// Constants as for packed_attention.wgsl. Dispatch (KV_HEADS, ceil(count / 32), ceil(HEAD_DIM / 64)).
#import pack
@group(0) @binding(0) var<storage, read> pack: Pack;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> k: array<vec4f>;
@group(0) @binding(3) var<storage, read> v: array<vec4f>;
@group(0) @binding(4) var<storage, read> dout: array<vec4f>;
@group(0) @binding(5) var<storage, read> stats: array<vec2f>;
@group(0) @binding(6) var<storage, read_write> dk: array<vec4f>;
@group(0) @binding(7) var<storage, read_write> dv: array<vec4f>;
#import attention_pairs
#import pack_sight
#import attention_gradient

var<private> kv_head: u32;
var<private> head: u32;

fn own_quad(which: u32, row: u32, quad: u32) -> vec4f {
  if (row >= pack.count) { return vec4f(); }
  let at = (row * KV_HEADS + kv_head) * QUADS + quad;
  if (which == 0u) { return k[at]; }
  return v[at];
}
fn other_quad(which: u32, row: u32, quad: u32) -> vec4f {
  if (row >= pack.count) { return vec4f(); }
  let at = (row * HEADS + head) * QUADS + quad;
  if (which == 0u) { return q[at]; }
  return dout[at];
}
fn shares_with(row: u32, key: u32, products: vec4f, dp: vec4f) -> Shares {
  let seen = vec4<bool>(sees(row, key), sees(row, key + 8u), sees(row, key + 16u), sees(row, key + 24u));
  let own = stats[min(row, pack.count - 1u) * HEADS + head];
  return shares_of(products, dp, vec4f(own.x), vec4f(own.y), seen);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let t0 = group.y * 32u;
  if (t0 >= pack.count) { return; }
  kv_head = group.x;
  let r = index % 8u;
  let c = index / 8u;
  let first = group.z * 16u;
  var dk_sums = Sums();
  var dv_sums = Sums();
  for (var h = 0u; h < HEADS / KV_HEADS; h++) {
    head = kv_head * (HEADS / KV_HEADS) + h;
    for (var m0 = t0; m0 < pack.count; m0 += 32u) {
      if (!may_see(m0, t0)) { break; }
      let products = dots(0u, t0, m0, index);
      let dp = dots(1u, t0, m0, index);
      let low = shares_with(m0 + c, t0 + r, products.low, dp.low);
      let high = shares_with(m0 + c + 16u, t0 + r, products.high, dp.high);
      dv_sums = weighted(dv_sums, 1u, m0, first, Pair(low.p, high.p), index);
      dk_sums = weighted(dk_sums, 0u, m0, first, Pair(low.ds, high.ds), index);
    }
  }
  for (var i = 0u; i < 4u; i++) {
    let key = t0 + r + 8u * i;
    if (key >= pack.count || first + c >= QUADS) { continue; }
    let at = (key * KV_HEADS + kv_head) * QUADS + first + c;
    dk[at] = dk_sums[i];
    dv[at] = dv_sums[i];
  }
}
