// A x of several rows of x comes from lora_down.wgsl.
#import lora_lanes
const LORA_SHARED = false;
var<private> lora_m0: u32;
fn lora_start(item: u32, m0: u32, index: u32) { lora_m0 = m0; }
fn lora_share(index: u32) {}
fn lora_column(linear: u32, m: u32, i: u32) -> f32 {
  return lora_at(((lora_m0 + m) * LINEARS + linear) * RANK + i);
}
