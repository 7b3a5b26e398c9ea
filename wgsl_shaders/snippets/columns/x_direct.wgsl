// Columns of x, read directly from its buffer: for software adapters, on which a barrier costs far more than it saves.
// Without NORM.
#import block_dot_floats
fn stage_columns(m0: u32, first: u32, index: u32) {}
fn cache_columns(lane: u32) {}
fn column_quad(m0: u32, m: u32, first: u32, i: u32, block: u32, w: u32) -> vec4f { return x[(m0 + m) * (K / 4u) + block * 8u + w]; }
fn norm_scale(m: u32, index: u32) -> f32 { return 1.0; }
