@group(0) @binding(1) var<storage, read> q: array<vec4f>;
fn q_quad(i: u32) -> vec4f { return q[i]; }
