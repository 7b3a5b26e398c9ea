// The PCG hash (jcgt.org/published/0009/03/02).
fn pcg(value: u32) -> u32 {
  let s = value * 747796405u + 2891336453u;
  let word = ((s >> ((s >> 28u) + 4u)) ^ s) * 277803737u;
  return (word >> 22u) ^ word;
}
