// What the phases of a persistent kernel share (py_core/backends/webgpu/lowering/persistent.py). A phase is a kernel whose
// workgroups wait for the values of the phases before it, instead of being dispatched after them. Phases of the same kind are one
// text; each step of the schedule says which it is, and where its own weights, pages and values begin.
// What a workgroup hands to others carries its own flag: the number of the dispatch modulo 4 in the two lowest bits of a
// float. A reader waits until they are right. This needs only that each address by itself is coherent: WGSL promises no
// order between addresses, and no progress of a workgroup while another waits. So an invocation reads in vain SPINS times
// at most. Then it goes on with what is there, and says so in handed[0]; later dispatches do not wait at all.
// handed: whether an invocation has given up; for each workgroup the number of its last dispatch modulo 4, from TURNS on;
// from PLACES on the values that the phases hand on. Each dispatch writes all of these: otherwise an old value could pass
// for a new one.
struct Step {
  kind: u32, quants_at: u32, scales_at: u32, vectors_at: u32,
  layer: u32, read_at: u32, added_at: u32, store_at: u32,
}
var<private> quants_at: u32;
var<private> scales_at: u32;
var<private> vectors_at: u32;
var<private> pages_at: u32;
var<private> read_at: u32;   // the place of x, or of queries
var<private> added_at: u32;  // the place of what is added to y
var<private> store_at: u32;  // the place of what the phase hands on

var<private> tag: u32;
var<private> patience: u32;  // reads in vain that are left

fn begin(group: u32) {
  tag = (atomicLoad(&handed[TURNS + group]) + 1u) & 3u;
  patience = select(SPINS, 0u, atomicLoad(&handed[0]) != 0u);
}
// After a barrier behind `begin`.
fn end(group: u32, index: u32) {
  if (index == 0u) { atomicStore(&handed[TURNS + group], tag); }
  if (patience == 0u) { atomicStore(&handed[0], 1u); }
}
// Rounded to 21 bits of mantissa.
fn hand(place: u32, value: f32) { atomicStore(&handed[PLACES + place], ((bitcast<u32>(value) + 2u) & 0xfffffffcu) | tag); }
fn value_of(handed_word: u32) -> f32 { return bitcast<f32>(handed_word & 0xfffffffcu); }
fn taken(place: u32) -> f32 {
  var word = atomicLoad(&handed[PLACES + place]);
  while (((word ^ tag) & 3u) != 0u && patience > 0u) {
    patience -= 1u;
    word = atomicLoad(&handed[PLACES + place]);
  }
  return value_of(word);
}
