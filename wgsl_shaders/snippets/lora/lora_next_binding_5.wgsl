@group(0) @binding(5) var<storage, read_write> next: array<f32>;
