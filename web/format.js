/** Numbers as the page writes them. */

/** "42.1 of 98.4 MB", or "42.1 MB" where the total is not known. A megabyte is 1,000,000 bytes. */
export function formatProgress(done, total) {
  const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
  return total ? `${megabytes(done)} of ${megabytes(total)} MB` : `${megabytes(done)} MB`;
}

/** "0.82 tok/s", "12.3 tok/s", "214 tok/s" */
export function formatRate(tokensPerSecond) {
  const digits = tokensPerSecond < 1 ? 2 : tokensPerSecond < 100 ? 1 : 0;
  return `${tokensPerSecond.toFixed(digits)} tok/s`;
}

/** "4.2 µs", "310 µs", "12.5 ms" */
export function formatMicroseconds(us) {
  const [value, unit] = us < 1000 ? [us, 'µs'] : [us / 1000, 'ms'];
  return `${value.toFixed(value < 100 ? 1 : 0)} ${unit}`;
}

/** "0.4%", "41%" */
export function formatShare(share) {
  return `${(100 * share).toFixed(share < 0.01 ? 1 : 0)}%`;
}

/** Of {gb_s, gflop_s}: "5.2 GB/s" or "2.7 TB/s" of memory, "310 GFLOP/s" of computing. */
export function formatSpeed(limit, { gb_s: gigabytes, gflop_s: gigaflops }) {
  const [speed, unit] = limit === 'memory' ? [gigabytes, 'B/s'] : [gigaflops, 'FLOP/s'];
  const [value, prefix] = speed < 1000 ? [speed, 'G'] : [speed / 1000, 'T'];
  return `${value.toFixed(value < 100 ? 1 : 0)} ${prefix}${unit}`;
}
