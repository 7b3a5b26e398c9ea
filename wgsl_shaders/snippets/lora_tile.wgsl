// For matmuls: what a set adds to an element of their product, from A x, which lora_down.wgsl made.
#import lora_matrices
const LORA = true;
fn lora_of(m: u32, row: u32) -> f32 {
  let own = row + LORA_FIRST;
  let products = LORA_X + (m * LINEARS + lora_linear(own)) * (RANK / 4u);
  let b = lora_set() + LORA_B + own * (RANK / 4u);
  var sum = 0.0;
  for (var i = 0u; i < RANK / 4u; i++) { sum += dot(lora[products + i], lora[b + i]); }
  return sum;
}
