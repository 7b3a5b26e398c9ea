// Attention's output is handed on to the next phase of a persistent kernel (persistent.wgsl).
fn store_out(i: u32, value: vec4f) {
  for (var n = 0u; n < 4u; n++) { hand(store_at + 4u * i + n, value[n]); }
}
