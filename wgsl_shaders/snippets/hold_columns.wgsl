// An invocation's own blocks of x, kept where several rows are multiplied by them one after the other: workgroup memory is not
// much faster than the weights come. Where it is one row they are read from there as they are needed.
// Needs tile: array<Column, M_TILE * CHUNK>, PER_LANE, TEAM.
var<private> held: array<Column, select(1u, PER_LANE * M_TILE, TURNS > 1u)>;
fn hold_columns(member: u32) {
  if (TURNS == 1u) { return; }
  for (var i = 0u; i < PER_LANE; i++) {
    let block = min(i * TEAM + member, CHUNK - 1u);
    for (var m = 0u; m < M_TILE; m++) { held[i * M_TILE + m] = tile[m * CHUNK + block]; }
  }
}
