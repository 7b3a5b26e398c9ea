// A x comes from lora_down.wgsl.
#import lora_lanes
var<private> lora_m0: u32;
fn lora_start(item: u32, m0: u32, index: u32) { lora_m0 = m0; }
fn lora_column(linear: u32, m: u32, i: u32) -> f32 {
  let at = ((lora_m0 + m) * LINEARS + linear) * RANK + i;
  return lora[LORA_X + at / 4u][at % 4u];
}
