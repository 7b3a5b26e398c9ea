// Without an adapter: adds nothing to the products of a matmul. The variant lora_tile does.
const LORA = false;
const LORA_QUADS = 0u;
fn lora_x(m: u32, linear: u32, quad: u32) -> vec4f { return vec4f(); }
fn lora_b(row: u32, quad: u32) -> vec4f { return vec4f(); }
fn lora_linear_of(row: u32) -> u32 { return 0u; }
fn lora_of(m: u32, row: u32) -> f32 { return 0.0; }
