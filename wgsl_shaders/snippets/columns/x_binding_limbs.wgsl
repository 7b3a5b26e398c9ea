@group(0) @binding(3) var<storage, read> x: array<vec4u>;
const LIMBS_MADE = true;
