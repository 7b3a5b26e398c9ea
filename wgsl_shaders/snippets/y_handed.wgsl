// y of a phase of a persistent kernel (persistent.wgsl), at the place Y_PLACE of what the workgroups hand to each other.
// Constants: Y_TAKEN: y_at is an earlier phase's value, at Y_FROM; Y_HANDED: a later phase reads y; Y_KEPT: y is stored for later
// kernels.
fn y_at(i: u32) -> f32 {
  if (Y_TAKEN) { return taken(Y_FROM + i); }
  return y[i];
}
fn store_y(i: u32, value: f32) {
  if (Y_HANDED) { hand(Y_PLACE + i, value); }
  if (Y_KEPT) { y[i] = value; }
}
