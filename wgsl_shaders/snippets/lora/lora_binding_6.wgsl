@group(0) @binding(6) var<storage, read> lora: array<vec4f>;
