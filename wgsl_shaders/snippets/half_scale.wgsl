// d of a block, where S has a half a block.
#import halves
fn half_scale(block: u32) -> f32 { return halves(scales[block / 2u])[block % 2u]; }
