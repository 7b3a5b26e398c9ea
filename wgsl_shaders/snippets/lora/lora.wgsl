// Without an adapter: adds nothing to the products with W. The variants lora_read, lora_parts and lora_tile do.
const LORA = false;
struct LoraRows { unused: u32 }
fn lora_start(item: u32, m0: u32, index: u32) {}
fn lora_ready() {}
fn lora_rows(item: u32, lane: u32) -> LoraRows { return LoraRows(); }
fn lora_term(rows: LoraRows, item: u32, r: u32, m: u32, index: u32) -> f32 { return 0.0; }
