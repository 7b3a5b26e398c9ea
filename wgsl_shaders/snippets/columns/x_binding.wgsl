@group(0) @binding(3) var<storage, read> x: array<vec4f>;
const LIMBS_MADE = false;  // whether x was converted to integers before
