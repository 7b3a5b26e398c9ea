// tanh without large arguments, for which WGSL's own overflows on some drivers: beyond 10 it is 1 in float32. WGSL also
// allows an error of 1e-5, which soft-caps would multiply.
fn tanh_of(x: f32) -> f32 { return 1.0 - 2.0 / (exp(2.0 * clamp(x, -10.0, 10.0)) + 1.0); }
fn tanh_of4(x: vec4f) -> vec4f { return 1.0 - 2.0 / (exp(2.0 * clamp(x, vec4f(-10.0), vec4f(10.0))) + 1.0); }
