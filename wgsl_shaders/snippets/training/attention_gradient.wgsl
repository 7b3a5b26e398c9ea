// The gradient of a row's scores, whose weights were p = exp(cap(score) - log_sum), given the product of its dout with
// a value, and stats = (log_sum, dout . out) from attention_dots.wgsl. Constants: SCALE, those of scores.wgsl.
#import scores
struct Shares { p: vec4f, ds: vec4f }
fn shares_of(products: vec4f, dp: vec4f, log_sum: vec4f, dot_out: vec4f, seen: vec4<bool>) -> Shares {
  let score = capped4(SCALE * products);
  let p = select(vec4f(), exp(score - log_sum), seen);
  var ds = p * (dp - dot_out);
  if (SOFTCAP != 0.0) { ds *= 1.0 - (score / SOFTCAP) * (score / SOFTCAP); }
  return Shares(p, SCALE * select(vec4f(), ds, seen));
}
