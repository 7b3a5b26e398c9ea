// The sum of the weights that a row's neighbours give a token. Needs near: array<f32>.
#import head_slots
fn near_weight(row: u32, slot: u32, token: u32) -> f32 {
  var weight = 0.0;
  for (var i = 0u; i < slot_count(slot); i++) {
    if (slot_token(slot, i) == token) { weight += near[row * NEAR + 1u + i]; }
  }
  return weight;
}
