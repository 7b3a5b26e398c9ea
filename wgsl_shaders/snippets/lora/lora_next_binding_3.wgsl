@group(0) @binding(3) var<storage, read_write> next: array<f32>;
