// A checksum of weights that a browser keeps (web/storage/kept_weights.js). It finds damage by a disk, not an attacker.
#include "kernels.h"

#define LANES 4

static uint64_t mixed(uint64_t sum, uint64_t word) {
  sum ^= word;
  return (sum << 29 | sum >> 35) * 0x9E3779B97F4A7C15;
}

// Of `nbytes`, a multiple of 32, from an address that is a multiple of 8.
uint64_t EXPORT(checksum)(const uint64_t *words, u32 nbytes) {
  uint64_t sums[LANES] = {1, 2, 3, 4};
  for (u32 at = 0; at < nbytes / 8; at += LANES) {
    for (u32 lane = 0; lane < LANES; lane++) sums[lane] = mixed(sums[lane], words[at + lane]);
  }
  uint64_t all = 0;
  for (u32 lane = 0; lane < LANES; lane++) all = mixed(all, sums[lane]);
  return all;
}
