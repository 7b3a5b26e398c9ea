// Without a conversion of x to integers.
const LIMBS = false;
fn make_limbs(m0: u32, index: u32) {}
