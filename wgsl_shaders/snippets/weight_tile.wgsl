// The rows of W in a matmul's tile of ROWS: with EPILOGUE 2, half of them are from the first N rows and half from the
// others.
const TILE_N = select(ROWS, ROWS / 2u, EPILOGUE == 2u);
fn tile_row(n0: u32, i: u32) -> u32 {  // counted from FIRST_ROW on
  if (EPILOGUE == 2u && i >= TILE_N) { return N + min(n0 + i - TILE_N, N - 1u); }
  return min(n0 + i, N - 1u);
}
fn weight_row(n0: u32, i: u32) -> u32 { return FIRST_ROW + tile_row(n0, i); }
