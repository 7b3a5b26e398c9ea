// Weight (n, r) of a matrix with few columns: a of a LoRA pair, (RANK, N), or with B rows FIRST_ROW .. FIRST_ROW + N of
// b, (rows, RANK).
fn weight_at(n: u32, r: u32) -> u32 {
  if (B) { return (FIRST_ROW + n) * RANK + r; }
  return r * N + n;
}
