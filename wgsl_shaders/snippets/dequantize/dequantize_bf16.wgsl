// BF16: the upper half of a float.
#import sixteen_bits
fn widen(word: u32) -> vec2f { return bitcast<vec2f>(vec2u(word << 16u, word & 0xffff0000u)); }
