// The gradient of a chunk's logits l, in place: weight (p - onehot(target)) + kl_weight (p - p_base), times
// 1 - (l / CAP)^2 with a soft-cap. 0 behind the chunk's last token.
// Bindings: 0 state: the chunk; 1 rows: LossRow of each; 2 sums: LossSums of each; 3 base_logits: (MAX_ROWS, CHUNK),
//           any buffer without KL; 4 vectors: as in loss_sums.wgsl; 5 logits: (MAX_ROWS, CHUNK).
// Constants: CHUNK, WORKGROUP; those of loss_rows.wgsl. Dispatch (ceil(CHUNK / WORKGROUP), count).
#import chunk_state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> rows: array<LossRow>;
@group(0) @binding(2) var<storage, read> sums: array<LossSums>;
@group(0) @binding(3) var<storage, read> base_logits: array<f32>;
@group(0) @binding(4) var<storage, read> vectors: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> logits: array<f32>;
#import loss_rows

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.count || id.x >= CHUNK) { return; }
  let at = id.y * CHUNK + id.x;
  if (id.x >= state.size) {
    logits[at] = 0.0;
    return;
  }
  let row = rows[id.y];
  let found = sums[id.y];
  let logit = logit_of(logits[at], id.x);
  let share = exp(logit - found.largest) / found.total;
  var slope = row.weight * share;
  if (state.first_token + id.x == row.target_token) { slope -= row.weight; }
  if (KL) {
    let base = logit_of(base_logits[at], id.x);
    slope += row.kl_weight * (share - exp(base - found.base_largest) / found.base_total);
  }
  if (CAP != 0.0) { slope *= 1.0 - (logit / CAP) * (logit / CAP); }
  logits[at] = slope;
}
