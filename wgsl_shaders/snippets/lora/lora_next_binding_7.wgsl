@group(0) @binding(7) var<storage, read_write> next: array<f32>;
