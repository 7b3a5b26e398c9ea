// A LoRA set's contribution to the linears of an operation (q, k and v; gate and up): (A x) B^T, with an A of RANK rows
// for each linear. `lora` are the operation's floats:
//   A x        (MAX_ROWS, LINEARS, RANK)
//   A          of each linear, (LINEARS, K, RANK), from LORA_A on
//   B          of the rows of all linears, (rows, RANK), from LORA_B on
//   A w        like A, for x that a norm computes from its input, w its weights; only if there is a norm
// Constants: RANK and LINEARS; LORA_A, LORA_B; LORA_SECOND and LORA_THIRD: the first rows of the second and the third
// linear; LORA_FIRST: the row, counted over all linears, that is row FIRST_ROW of W.
#import lora_binding
fn lora_at(i: u32) -> f32 { return lora[i / 4u][i % 4u]; }
fn lora_linear(row: u32) -> u32 { return u32(row >= LORA_SECOND) + u32(row >= LORA_THIRD); }
