// A step of AdamW (arXiv 1711.05101), if the Step says to apply it. The gradient is 0 afterwards.
// Bindings: 0 rule; 1 found: the Step; 2 parameters, 3 first and 4 second moment, 5 gradient: QUADS vec4f.
// Constants: QUADS, WORKGROUP. Dispatch (g, h) with g * h * WORKGROUP >= QUADS.
#import step
@group(0) @binding(0) var<storage, read> rule: Rule;
@group(0) @binding(1) var<storage, read> found: Step;
@group(0) @binding(2) var<storage, read_write> parameters: array<vec4f>;
@group(0) @binding(3) var<storage, read_write> first: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> second: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> gradient: array<vec4f>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  let i = place(id, groups);
  if (i >= QUADS) { return; }
  if (found.applied == 1u) {
    let slope = gradient[i] * found.factor;
    let m = rule.beta1 * first[i] + (1.0 - rule.beta1) * slope;
    let v = rule.beta2 * second[i] + (1.0 - rule.beta2) * slope * slope;
    first[i] = m;
    second[i] = v;
    let own = parameters[i];
    let direction = m / rule.correction1 / (sqrt(v / rule.correction2) + rule.eps);
    parameters[i] = own - rule.rate * (direction + rule.decay * own);
  }
  gradient[i] = vec4f();
}
