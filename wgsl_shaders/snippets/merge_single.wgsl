// LANES = 1: one lane has seen every token.
struct Partial { largest: f32, total: f32, values: array<vec4f, HEAD_DIM / 4u> }
fn merge_lanes(sum: ptr<function, Partial>, index: u32, lane: u32) {}
