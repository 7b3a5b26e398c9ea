// In a persistent kernel queries are read where a later phase stores those of the next block.
fn q_quad(i: u32) -> vec4f { return vec4f(q_out[4u * i], q_out[4u * i + 1u], q_out[4u * i + 2u], q_out[4u * i + 3u]); }
