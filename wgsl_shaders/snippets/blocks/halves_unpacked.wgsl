// Two halves of a word, for adapters that keep subnormals.
fn halves(word: u32) -> vec2f { return unpack2x16float(word); }
