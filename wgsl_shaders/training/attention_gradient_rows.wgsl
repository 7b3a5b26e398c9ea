// dq[m, h] = sum_t ds[m, t] k[t, g], with ds the gradient of the scores of packed_attention.wgsl, recomputed.
// A workgroup handles 32 rows of a head, iterates over tiles of 32 keys, and computes 64 columns of dq.
// Bindings: 0 pack; 1 q: (MAX_ROWS, HEADS * HEAD_DIM / 4) vec4f; 2 k and 3 v: (MAX_ROWS, KV_HEADS * HEAD_DIM / 4)
//           vec4f; 4 dout: as q; 5 stats: (MAX_ROWS, HEADS) vec2f; 6 dq: as q.
// Constants and dispatch as for packed_attention.wgsl.
#import pack
@group(0) @binding(0) var<storage, read> pack: Pack;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> k: array<vec4f>;
@group(0) @binding(3) var<storage, read> v: array<vec4f>;
@group(0) @binding(4) var<storage, read> dout: array<vec4f>;
@group(0) @binding(5) var<storage, read> stats: array<vec2f>;
@group(0) @binding(6) var<storage, read_write> dq: array<vec4f>;
#import attention_pairs
#import pack_sight
#import pack_keys
#import attention_gradient

fn own_quad(which: u32, row: u32, quad: u32) -> vec4f {
  if (row >= pack.count) { return vec4f(); }
  let at = (row * HEADS + head) * QUADS + quad;
  if (which == 0u) { return q[at]; }
  return dout[at];
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let m0 = group.y * 32u;
  if (m0 >= pack.count) { return; }
  head = group.x;
  let r = index % 8u;
  let c = index / 8u;
  let end = min(m0 + 32u, pack.count);
  let first = group.z * 16u;
  var log_sum = vec4f();
  var dot_out = vec4f();
  for (var i = 0u; i < 4u; i++) {
    let own = stats[min(m0 + r + 8u * i, end - 1u) * HEADS + head];
    log_sum[i] = own.x;
    dot_out[i] = own.y;
  }
  var sums = Sums();
  for (var t0 = 0u; t0 < end; t0 += 32u) {
    if (!may_see(m0, t0)) { continue; }
    let products = dots(0u, m0, t0, index);
    let dp = dots(1u, m0, t0, index);
    let low = shares_of(products.low, dp.low, log_sum, dot_out, seen_by(m0 + r, t0 + c));
    let high = shares_of(products.high, dp.high, log_sum, dot_out, seen_by(m0 + r, t0 + c + 16u));
    sums = weighted(sums, 0u, t0, first, Pair(low.ds, high.ds), index);
  }
  for (var i = 0u; i < 4u; i++) {
    let row = m0 + r + 8u * i;
    if (row < end && first + c < QUADS) { dq[(row * HEADS + head) * QUADS + first + c] = sums[i]; }
  }
}
