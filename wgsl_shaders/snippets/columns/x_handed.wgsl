// x was handed on by earlier phases of a persistent kernel, and is brought to workgroup memory by `arrive`.
const LIMBS_MADE = false;
