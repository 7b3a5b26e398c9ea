// The linears of q, k and v, their rotation, and the keys' and values' way into the layer's pages, for few rows m.
// q_out[m] = rope(Wq x[m]); the pages get rope(Wk x[m]) and Wv x[m] at each row's position. With NORM of x normalized by RMS.
// Bindings: 0 state; 1 quants and 2 scales of W: FIRST_HEAD .. FIRST_HEAD + N / HEAD_DIM of the heads of q, k and v one after
//           the other, rows of K values in blocks of 32; 3 x: (MAX_ROWS, K / 4) vec4f; 4 norm_weight: (K / 4) vec4f, without
//           NORM anything; 5 angles: (positions, HEAD_DIM / 2) of (cos, sin); 6 page_table; 7 q_out: (MAX_ROWS, HEADS,
//           HEAD_DIM); 8 kv: the layer's pages.
// Constants: K, N, FIRST_HEAD, HEADS, KV_HEADS, HEAD_DIM, PAGE, MAX_PAGES, NORM, EPS, CHUNK, LANES, M_TILE, WORKGROUP, ONE as in matvec;
// ROWS = 2: an item is a pair that is rotated together, INTERLEAVED: (2i, 2i + 1), otherwise (i, i + HEAD_DIM / 2).
// Dispatch (g, h, ceil(count / M_TILE)) with g * h >= ceil(N / 2 / (WORKGROUP / LANES)).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> quants: array<vec4u>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> x: array<vec4f>;
@group(0) @binding(4) var<storage, read> norm_weight: array<vec4f>;
@group(0) @binding(5) var<storage, read> angles: array<vec2f>;
@group(0) @binding(6) var<storage, read> page_table: array<u32>;
@group(0) @binding(7) var<storage, read_write> q_out: array<f32>;
@group(0) @binding(8) var<storage, read_write> kv: array<f32>;
#import dot_rows
#import kv_pages

const HALF = HEAD_DIM / 2u;

// Where a pair's r-th value lies in its head.
fn in_head(item: u32, r: u32) -> u32 {
  let i = item % HALF;
  return select(i + r * HALF, 2u * i + r, INTERLEAVED);
}
fn weight_row(item: u32, r: u32) -> u32 {
  let own = min(item, N / 2u - 1u);
  return own / HALF * HEAD_DIM + in_head(own, r);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let m0 = group.z * M_TILE;
  var count = 1u;
  if (!ONE) {
    count = state.count;
    if (m0 >= count) { return; }
  }
  let item = (group.y * groups.x + group.x) * (WORKGROUP / LANES) + index / LANES;
  let head = FIRST_HEAD + min(item, N / 2u - 1u) / HALF;
  let is_value = head >= HEADS + KV_HEADS;
  // Where the row is and how it turns is found out before the sums, not after them.
  var turns: array<vec2f, M_TILE>;
  var keys: array<u32, M_TILE>;
  for (var m = 0u; m < M_TILE; m++) {
    let row = state.rows[min(m0 + m, MAX_ROWS - 1u)];
    turns[m] = angles[row.position * HALF + item % HALF];
    keys[m] = kv_index(row.slot, row.position, (head - HEADS) % KV_HEADS, u32(is_value)) * 4u;
  }
  var sums = dot_rows(item, m0, index);
  if (index % LANES != 0u || item >= N / 2u) { return; }
  for (var m = 0u; m < M_TILE && m0 + m < count; m++) {
    var pair = vec2f(sums[0][m], sums[1][m]);
    if (!is_value) {
      let turn = turns[m];
      pair = vec2f(pair.x * turn.x - pair.y * turn.y, pair.x * turn.y + pair.y * turn.x);
    }
    if (head < HEADS) {
      let to = ((m0 + m) * HEADS + head) * HEAD_DIM;
      q_out[to + in_head(item, 0u)] = pair.x;
      q_out[to + in_head(item, 1u)] = pair.y;
    } else {
      kv[keys[m] + in_head(item, 0u)] = pair.x;
      kv[keys[m] + in_head(item, 1u)] = pair.y;
    }
  }
}
