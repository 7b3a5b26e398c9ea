@group(0) @binding(1) var<storage, read> q: array<vec4f>;
fn arrive(slot: u32, position: u32, head: u32, kv_head: u32, stores: bool, index: u32) {}  // nobody has to wait for queries
fn q_quad(i: u32) -> vec4f { return q[i]; }
// The newest key and value are in their page already.
fn newest_or(floats: vec4f, is_newest: bool, which: u32, quad: u32) -> vec4f { return floats; }
