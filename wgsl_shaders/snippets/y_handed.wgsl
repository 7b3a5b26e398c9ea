// y of a phase of a persistent kernel (persistent.wgsl).
// Constants: Y_TAKEN: y_at is an earlier phase's value, from added_at on; Y_HANDED: a later phase reads y; Y_KEPT: y is stored for
// later kernels.
fn y_at(i: u32) -> f32 {
  if (Y_TAKEN) { return taken(added_at + i); }
  return y[i];
}
fn store_y(i: u32, value: f32) {
  if (Y_HANDED) { hand(store_at + i, value); }
  if (Y_KEPT) { y[i] = value; }
}
