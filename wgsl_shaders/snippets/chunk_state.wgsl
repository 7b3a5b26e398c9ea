// A chunk of the vocabulary, in place of the state: the rows with a loss, the chunk's first row in the part of the output matrix that
// is bound, its first token, and its number of tokens.
struct State { count: u32, first_row: u32, first_token: u32, size: u32 }
