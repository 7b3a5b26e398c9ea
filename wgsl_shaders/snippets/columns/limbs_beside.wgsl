// A workgroup converts M_TILE rows of x to integers.
const LIMBS = true;
@group(0) @binding(3) var<storage, read_write> records: array<Limbs>;
#import limbs_record
fn make_limbs(m0: u32, index: u32) {
  for (var i = index; i < M_TILE * (K / 32u); i += WORKGROUP) {
    let m = m0 + i / (K / 32u);
    if (m < state.count) { records[i % (K / 32u) * MAX_ROWS + m] = limbs_record(m, i % (K / 32u)); }
  }
}
