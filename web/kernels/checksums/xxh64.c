// XXH64 with seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md): it runs at memory speed, and detects accidental
// damage, but not tampering. web/storage/xxh64.js has the memory layout.
#include <stdint.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;
#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name
#define INLINE static inline __attribute__((always_inline))

static const u64 P1 = 0x9e3779b185ebca87, P2 = 0xc2b2ae3d27d4eb4f, P3 = 0x165667b19e3779f9, P4 = 0x85ebca77c2b2ae63,
                 P5 = 0x27d4eb2f165667c5;

INLINE u64 rotated(u64 x, u32 by) { return x << by | x >> (64 - by); }
INLINE u64 mixed(u64 sum, u64 lane) { return rotated(sum + lane * P2, 31) * P1; }
INLINE u64 merged(u64 sum, u64 of) { return (sum ^ mixed(0, of)) * P1 + P4; }

INLINE u64 read64(const u8 *from) {
  u64 lane;
  __builtin_memcpy(&lane, from, sizeof lane);
  return lane;
}

INLINE u32 read32(const u8 *from) {
  u32 lane;
  __builtin_memcpy(&lane, from, sizeof lane);
  return lane;
}

u64 EXPORT(xxh64)(const u8 *data, u32 length) {
  const u8 *end = data + length;
  u64 sum = P5;
  if (length >= 32) {
    u64 a = P1 + P2, b = P2, c = 0, d = -P1;
    for (; end - data >= 32; data += 32) {
      a = mixed(a, read64(data)), b = mixed(b, read64(data + 8));
      c = mixed(c, read64(data + 16)), d = mixed(d, read64(data + 24));
    }
    sum = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18);
    sum = merged(merged(merged(merged(sum, a), b), c), d);
  }
  sum += length;
  for (; end - data >= 8; data += 8) sum = rotated(sum ^ mixed(0, read64(data)), 27) * P1 + P4;
  if (end - data >= 4) sum = rotated(sum ^ read32(data) * P1, 23) * P2 + P3, data += 4;
  for (; data < end; data++) sum = rotated(sum ^ *data * P5, 11) * P1;
  sum = (sum ^ sum >> 33) * P2;
  sum = (sum ^ sum >> 29) * P3;
  return sum ^ sum >> 32;
}
