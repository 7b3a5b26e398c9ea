@group(0) @binding(4) var<storage, read_write> out: array<vec4f>;
fn store_out(i: u32, value: vec4f) { out[i] = value; }
