// The rows of a pack that have a loss, and their sums so far. Needs state (chunk_state.wgsl), vectors.
// Constants: CAP: logits are CAP * tanh(logit / CAP), 0 for no cap; ADD_BIAS, those of bias.wgsl; KL: whether the
// base's own logits are there.
#import tanh
#import bias
struct LossRow { row: u32, target_token: u32, weight: f32, kl_weight: f32 }
// For the logits and for the base's logits: the largest, and the sum of exp(logit - largest); the target's logit; and
// the sum of exp(base logit - the base's largest) * (base logit - logit).
struct LossSums { largest: f32, total: f32, base_largest: f32, base_total: f32, at_target: f32, difference: f32, unused0: f32, unused1: f32 }

fn logit_of(value: f32, column: u32) -> f32 {
  var logit = value;
  if (ADD_BIAS) { logit += bias_of(state.first_token + column); }
  if (CAP == 0.0) { return logit; }
  return CAP * tanh_of(logit / CAP);
}
