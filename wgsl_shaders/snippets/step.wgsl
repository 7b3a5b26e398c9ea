// A step of the optimizer. `Rule` comes from the host (AdamW of py_core/training/session.py; correction1 and
// correction2 are 1 - beta^steps), `Step` from gradient_norm.wgsl: the gradient's factor, and 1 if the step is applied.
struct Rule { rate: f32, beta1: f32, beta2: f32, eps: f32, decay: f32, clip: f32, correction1: f32, correction2: f32 }
struct Step { norm: f32, factor: f32, applied: u32, unused: u32 }
fn place(id: vec3u, groups: vec3u) -> u32 { return id.y * groups.x * WORKGROUP + id.x; }
