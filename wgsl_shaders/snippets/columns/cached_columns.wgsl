// A lane's own blocks of x. If several row tiles use them in turn, they are kept in registers: workgroup memory is not
// much faster than the memory of the weights. For a single row tile they are read from workgroup memory when they are
// needed.
// Needs tile: array<Column, M_TILE * CHUNK>, BLOCKS_PER_LANE, LANE_GROUP.
var<private> cached: array<Column, select(1u, BLOCKS_PER_LANE * M_TILE, ROW_TILES > 1u)>;
fn cache_columns(lane: u32) {
  if (ROW_TILES == 1u) { return; }
  for (var i = 0u; i < BLOCKS_PER_LANE; i++) {
    let block = min(i * LANE_GROUP + lane, CHUNK - 1u);
    for (var m = 0u; m < M_TILE; m++) { cached[i * M_TILE + m] = tile[m * CHUNK + block]; }
  }
}
