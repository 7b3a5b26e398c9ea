// The bias of a row of W. Needs vectors: array<vec4f>. Constants: BIAS_AT: the index of the first row's bias in it.
fn bias_of(row: u32) -> f32 {
  let at = BIAS_AT + row;
  return vectors[at / 4u][at % 4u];
}
