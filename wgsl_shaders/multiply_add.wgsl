// Measures the speed of float32 arithmetic: chains of multiplications and additions, 8 * CHAINS * STEPS FLOPs per
// invocation. It avoids fma(): a software adapter computes it exactly, which is slow, and a GPU's compiler fuses the
// two operations anyway, as in the other kernels.
// Bindings: 0 data: (2,) vec4f; 1 out: (1,).
// Constants: CHAINS (independent of each other), STEPS, WORKGROUP. Dispatch (g).
@group(0) @binding(0) var<storage, read> data: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let factor = data[0];
  let term = data[1] + f32(id.x);
  var chains: array<vec4f, CHAINS>;
  for (var c = 0u; c < CHAINS; c++) { chains[c] = term + f32(c); }
  for (var i = 0u; i < STEPS; i++) {
    for (var c = 0u; c < CHAINS; c++) { chains[c] = chains[c] * factor + term; }
  }
  var sum = vec4f(0.0);
  for (var c = 0u; c < CHAINS; c++) { sum += chains[c]; }
  // Never true, since the terms are at least 0, but the compiler cannot know that.
  if (sum.x + sum.y + sum.z + sum.w < 0.0) { out[0] = sum.x; }
}
