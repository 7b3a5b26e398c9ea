// A chunk of the vocabulary, instead of the state: the number of rows with a loss, the chunk's first row in the bound
// part of the output matrix, its first token, and its number of tokens.
struct State { count: u32, first_row: u32, first_token: u32, size: u32 }
