// What a set of LoRA matrices adds to a run of linears, one below the other in W: (A x) B^T, A of RANK rows for each
// linear. `lora` holds rows of A x, and then the sets, of which the state names one:
//   A of linear l, (K / 4, RANK) vec4f: columns 4q .. 4q + 3 of row i, from LORA_A + l * K / 4 * RANK on
//   B of all the run's rows, (rows, RANK) floats, from LORA_B on
// Constants: RANK, a multiple of 4; LINEARS; LORA_SECOND and LORA_THIRD: the first rows of the second and the third linear;
// LORA_FIRST: the run's row that is row FIRST_ROW of W here; LORA_X: where A x begins, (MAX_ROWS, LINEARS, RANK); LORA_A, LORA_B,
// and LORA_SET, the size of a set, in vec4f.
#import lora_binding
fn lora_set() -> u32 { return (state.adapter - 1u) * LORA_SET; }
fn lora_linear(row: u32) -> u32 { return u32(row >= LORA_SECOND) + u32(row >= LORA_THIRD); }
