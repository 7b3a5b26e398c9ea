// Q4_0: value = d * (q - 8)
#import four_bits
#import half_scale
const BIAS = 8.0;
const OFFSETS = false;
fn load_block(block: u32) -> Block { return Block(quants[block], vec2f(half_scale(block)), 0.0); }
