// Without an adapter: nothing is added to the products with W. lora_read, lora_made and lora_tile do it.
const LORA = false;
struct LoraRows { unused: u32 }
fn lora_start(item: u32, m0: u32, index: u32) {}
fn lora_rows(item: u32, lane: u32) -> LoraRows { return LoraRows(); }
fn lora_term(rows: LoraRows, item: u32, r: u32, m: u32, lane: u32) -> f32 { return 0.0; }
fn lora_of(m: u32, row: u32) -> f32 { return 0.0; }
