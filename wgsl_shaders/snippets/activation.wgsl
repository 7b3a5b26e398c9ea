// The activation of a gated linear unit: silu(x) = x / (1 + exp(-x)), or with GELU gelu's approximation by tanh.
#import tanh
fn activation(x: f32) -> f32 {
  if (GELU) { return 0.5 * x * (1.0 + tanh_of(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
  return x / (1.0 + exp(-x));
}
fn activation4(x: vec4f) -> vec4f {
  if (GELU) { return 0.5 * x * (1.0 + tanh_of4(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
  return x / (1.0 + exp(-x));
}
