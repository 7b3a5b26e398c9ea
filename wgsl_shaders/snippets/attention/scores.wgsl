// Caps and masks attention's scores. Constants: SOFTCAP: scores become SOFTCAP * tanh(score / SOFTCAP), 0 for no cap;
// WINDOW: how many of the last tokens a row sees, including its own, 0 for all.
#import tanh
fn first_seen(position: u32) -> u32 {
  if (WINDOW == 0u || position < WINDOW) { return 0u; }
  return position + 1u - WINDOW;
}
fn capped(score: f32) -> f32 {
  if (SOFTCAP == 0.0) { return score; }
  return SOFTCAP * tanh_of(score / SOFTCAP);
}
fn capped4(scores: vec4f) -> vec4f {
  if (SOFTCAP == 0.0) { return scores; }
  return SOFTCAP * tanh_of4(scores / SOFTCAP);
}
