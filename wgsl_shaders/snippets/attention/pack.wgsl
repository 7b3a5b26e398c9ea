// A pack of tokens that are trained on together (py_core/training/session.py). A row has the first row of its own
// sequence, its position, and 1 + the index of its loss, or 0 if it has none.
struct PackRow { start: u32, position: u32, loss: u32, unused: u32 }
struct Pack { count: u32, prefix: u32, losses: u32, unused: u32, rows: array<PackRow, MAX_ROWS> }
