// The place of block `column` of a row of W: block_of gives its number. If a word holds `each` blocks (a power of two),
// word_of gives its word and place_of its place in the word. If rows are whole words, most of that follows from the
// column alone, which is the same for all rows that an invocation reads.
const ROW_BLOCKS = (K + 31u) / 32u;  // the last may end with zeros
fn block_of(row: u32, column: u32) -> u32 { return row * ROW_BLOCKS + column; }
fn word_of(row: u32, column: u32, each: u32) -> u32 {
  if (K / 32u % each == 0u) { return row * (K / 32u / each) + column / each; }
  return block_of(row, column) / each;
}
fn place_of(row: u32, column: u32, each: u32) -> u32 {
  if (K / 32u % each == 0u) { return column % each; }
  return block_of(row, column) % each;
}
