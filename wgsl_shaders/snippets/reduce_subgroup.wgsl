// The sum over each run of LANES invocations (a power of two, at most the smallest subgroup), given to all of them.
fn reduce_lanes(value: f32, index: u32) -> f32 {
  var sum = value;
  for (var mask = LANES / 2u; mask > 0u; mask /= 2u) { sum += subgroupShuffleXor(sum, mask); }
  return sum;
}
fn reduce_lanes4(value: vec4f, index: u32) -> vec4f {
  var sum = value;
  for (var mask = LANES / 2u; mask > 0u; mask /= 2u) { sum += subgroupShuffleXor(sum, mask); }
  return sum;
}
// The value of the invocation, among the LANES, whose number differs in the bit `mask`.
fn shuffle_xor(value: f32, mask: u32, index: u32) -> f32 { return subgroupShuffleXor(value, mask); }
