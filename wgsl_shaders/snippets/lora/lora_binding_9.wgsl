@group(0) @binding(9) var<storage, read> lora: array<vec4f>;
