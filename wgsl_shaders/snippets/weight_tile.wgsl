// The rows of W that a matmul's tile of ROWS has: with EPILOGUE 2 half of them are from the first N rows and half from the
// others.
const TILE_N = select(ROWS, ROWS / 2u, EPILOGUE == 2u);
fn weight_row(n0: u32, i: u32) -> u32 {
  if (EPILOGUE == 2u && i >= TILE_N) { return FIRST_ROW + N + min(n0 + i - TILE_N, N - 1u); }
  return FIRST_ROW + min(n0 + i, N - 1u);
}
