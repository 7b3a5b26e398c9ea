// Row n of the part of W that a gradient passes through. Constants: FIRST_ROW.
fn gradient_row(n: u32) -> u32 { return FIRST_ROW + n; }
