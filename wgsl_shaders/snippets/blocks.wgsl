// Where block `column` of a row of W lies: its number; the word, of those that have `each` blocks (a power of two), and its
// place there. Where rows are whole words the column alone gives most of it: the same for all rows that an invocation reads.
fn block_of(row: u32, column: u32) -> u32 { return row * (K / 32u) + column; }
fn word_of(row: u32, column: u32, each: u32) -> u32 {
  if (K / 32u % each == 0u) { return row * (K / 32u / each) + column / each; }
  return block_of(row, column) / each;
}
fn place_of(row: u32, column: u32, each: u32) -> u32 {
  if (K / 32u % each == 0u) { return column % each; }
  return block_of(row, column) % each;
}
