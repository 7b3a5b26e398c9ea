// Decides which rows of a pack see which. Needs pack. Constants: WINDOW: how many of the last tokens a row sees, 0 for
// all.
fn sees(row: u32, key: u32) -> bool {
  if (row >= pack.count || key > row) { return false; }
  let own = pack.rows[row];
  if (key >= pack.prefix && key < own.start) { return false; }
  return WINDOW == 0u || own.position < pack.rows[key].position + WINDOW;
}
// Returns whether a row from `row` on may see one of 32 keys from `key` on: a row's sequence begins no later than the
// next row's.
fn may_see(row: u32, key: u32) -> bool { return key < pack.prefix || pack.rows[row].start < key + 32u; }
