// log(sum(exp(l))) of the VOCAB logits from `first` on, given to all invocations of a workgroup. Needs logit(i);
// uniform control flow. Constants: VOCAB, WORKGROUP (a power of two).
var<workgroup> sums: array<vec2f, WORKGROUP>;  // the largest, and the sum of exp(l - largest)

fn add_sums(a: vec2f, b: vec2f) -> vec2f {
  let most = max(a.x, b.x);
  return vec2f(most, a.y * exp(a.x - most) + b.y * exp(b.x - most));
}

fn logsumexp(first: u32, index: u32) -> f32 {
  const AHEAD = 8u;  // reads that an invocation issues together
  var sum = vec2f(-3e38, 0.0);
  for (var i = index; i < VOCAB; i += AHEAD * WORKGROUP) {
    var read: array<f32, AHEAD>;
    var most = sum.x;
    for (var j = 0u; j < AHEAD; j++) {
      read[j] = select(-3e38, logit(first + min(i + j * WORKGROUP, VOCAB - 1u)), i + j * WORKGROUP < VOCAB);
      most = max(most, read[j]);
    }
    var total = sum.y * exp(sum.x - most);
    for (var j = 0u; j < AHEAD; j++) { total += exp(read[j] - most); }
    sum = vec2f(most, total);
  }
  sums[index] = sum;
  for (var stride = WORKGROUP / 2u; stride > 0u; stride /= 2u) {
    workgroupBarrier();
    if (index < stride) { sums[index] = add_sums(sums[index], sums[index + stride]); }
  }
  workgroupBarrier();
  return sums[0].x + log(sums[0].y);
}
