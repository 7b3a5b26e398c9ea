// x is handed on by earlier phases of a persistent kernel; `arrive` brings CHUNK blocks of it to workgroup memory.
const LIMBS_MADE = false;
