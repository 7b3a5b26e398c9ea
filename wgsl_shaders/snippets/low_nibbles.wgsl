fn low_nibbles(word: u32) -> vec4u { return vec4u(word, word >> 8u, word >> 16u, word >> 24u) & vec4u(15u); }
