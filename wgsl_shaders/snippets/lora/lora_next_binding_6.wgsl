@group(0) @binding(6) var<storage, read_write> next: array<f32>;
