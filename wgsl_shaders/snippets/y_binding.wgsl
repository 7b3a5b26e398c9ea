@group(0) @binding(5) var<storage, read_write> y: array<f32>;
fn y_at(i: u32) -> f32 { return y[i]; }
fn store_y(i: u32, value: f32) { y[i] = value; }
