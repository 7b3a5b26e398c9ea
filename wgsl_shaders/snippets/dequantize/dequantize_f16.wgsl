// F16
#import sixteen_bits
#import halves
fn widen(word: u32) -> vec2f { return halves(word); }
