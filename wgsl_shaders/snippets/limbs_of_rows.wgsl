// Without integers of x.
const LIMBS = false;
fn make_limbs(m0: u32, index: u32) {}
