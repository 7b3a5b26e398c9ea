// SHA-256 (FIPS 180-4), block by block. web/storage/sha256.js does the rest: the memory layout and the last block.
#include <stdint.h>

typedef uint32_t u32;
#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name
#define INLINE static inline __attribute__((always_inline))

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
static const u32 K[64] = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

INLINE u32 rotated(u32 x, u32 by) { return x >> by | x << (32 - by); }

INLINE u32 small0(u32 x) { return rotated(x, 7) ^ rotated(x, 18) ^ x >> 3; }
INLINE u32 small1(u32 x) { return rotated(x, 17) ^ rotated(x, 19) ^ x >> 10; }
INLINE u32 large0(u32 x) { return rotated(x, 2) ^ rotated(x, 13) ^ rotated(x, 22); }
INLINE u32 large1(u32 x) { return rotated(x, 6) ^ rotated(x, 11) ^ rotated(x, 25); }

// The eight variables rotate by name, so that none is moved. w[] keeps only the last 16 words.
#define ROUND(a, b, c, d, e, f, g, h, i) do {                                                    \
    const u32 t = h + large1(e) + ((e & f) ^ (~e & g)) + K[round + i] + w[i];                    \
    d += t;                                                                                      \
    h = t + large0(a) + ((a & b) ^ (a & c) ^ (b & c));                                           \
  } while (0)
#define NEXT(i) (w[i] += small0(w[(i + 1) & 15]) + w[(i + 9) & 15] + small1(w[(i + 14) & 15]))

// state: the eight words so far. data: `count` blocks of 64 bytes.
void EXPORT(blocks)(u32 *state, const u32 *data, u32 count) {
  for (; count; count--, data += 16) {
    u32 w[16];
    u32 a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
    for (u32 i = 0; i < 16; i++) w[i] = __builtin_bswap32(data[i]);
    for (u32 round = 0; round < 64; round += 16) {
      if (round) {
        NEXT(0); NEXT(1); NEXT(2); NEXT(3); NEXT(4); NEXT(5); NEXT(6); NEXT(7);
        NEXT(8); NEXT(9); NEXT(10); NEXT(11); NEXT(12); NEXT(13); NEXT(14); NEXT(15);
      }
      ROUND(a, b, c, d, e, f, g, h, 0); ROUND(h, a, b, c, d, e, f, g, 1);
      ROUND(g, h, a, b, c, d, e, f, 2); ROUND(f, g, h, a, b, c, d, e, 3);
      ROUND(e, f, g, h, a, b, c, d, 4); ROUND(d, e, f, g, h, a, b, c, 5);
      ROUND(c, d, e, f, g, h, a, b, 6); ROUND(b, c, d, e, f, g, h, a, 7);
      ROUND(a, b, c, d, e, f, g, h, 8); ROUND(h, a, b, c, d, e, f, g, 9);
      ROUND(g, h, a, b, c, d, e, f, 10); ROUND(f, g, h, a, b, c, d, e, 11);
      ROUND(e, f, g, h, a, b, c, d, 12); ROUND(d, e, f, g, h, a, b, c, 13);
      ROUND(c, d, e, f, g, h, a, b, 14); ROUND(b, c, d, e, f, g, h, a, 15);
    }
    state[0] += a; state[1] += b; state[2] += c; state[3] += d;
    state[4] += e; state[5] += f; state[6] += g; state[7] += h;
  }
}
