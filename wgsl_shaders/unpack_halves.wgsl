// floats[i] = the i-th half: shows whether an adapter keeps subnormals.
// Bindings: 0 words: (4,), two halves each; 1 floats: (8,). Dispatch (1, 1, 1).
@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> floats: array<vec2f>;

@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) index: u32) { floats[index] = unpack2x16float(words[index]); }
