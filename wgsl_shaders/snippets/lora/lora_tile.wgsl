// For matmuls: a LoRA set's contribution to elements of the product, from lora_down.wgsl's A x.
#import lora_matrices
const LORA = true;
const LORA_QUADS = RANK / 4u;
fn lora_linear_of(row: u32) -> u32 { return lora_linear(row + LORA_FIRST); }
fn lora_x(m: u32, linear: u32, quad: u32) -> vec4f { return lora[(m * LINEARS + linear) * LORA_QUADS + quad]; }
fn lora_b(row: u32, quad: u32) -> vec4f { return lora[LORA_B / 4u + (row + LORA_FIRST) * LORA_QUADS + quad]; }
fn lora_of(m: u32, row: u32) -> f32 {
  let linear = lora_linear_of(row);
  var sum = 0.0;
  for (var q = 0u; q < LORA_QUADS; q++) { sum += dot(lora_x(m, linear, q), lora_b(row, q)); }
  return sum;
}
