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

/** "0%", "0.4%", "41%" */
export function formatShare(share) {
  return `${(100 * share).toFixed(share >= 0.0005 && share < 0.01 ? 1 : 0)}%`;
}

/** A speed of {gb_s, gflop_s} in words: "5.2 GB/s" or "2.7 TB/s" for memory, "310 GFLOP/s" for computing. */
export function formatSpeed(limit, { gb_s: gigabytes, gflop_s: gigaflops }) {
  const [speed, unit] = limit === 'memory' ? [gigabytes, 'B/s'] : [gigaflops, 'FLOP/s'];
  const [value, prefix] = speed < 1000 ? [speed, 'G'] : [speed / 1000, 'T'];
  return `${value.toFixed(value < 100 ? 1 : 0)} ${prefix}${unit}`;
}

/** Milliseconds: "310 µs", "12.5 ms", "8.4 s", "2 min 5 s" */
export function formatDuration(ms) {
  if (ms < 1000) return formatMicroseconds(ms * 1000);
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

/** "Thought for 3 s", "Thought for 2 min 5 s" */
export function formatThinking(seconds) {
  const whole = Math.max(1, Math.round(seconds));
  return `Thought for ${whole < 60 ? `${whole} s` : formatDuration(1000 * whole)}`;
}

/** "512 B", "12.4 kB", "98.4 MB", "1.2 GB". A kilobyte is 1,000 bytes. */
export function formatBytes(bytes) {
  const units = ['B', 'kB', 'MB', 'GB'];
  const power = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), 3);
  return `${(bytes / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

/** "1 pattern", "5,000 patterns"; the plural is the singular and an s unless it is given. */
export function formatCount(count, one, many = `${one}s`) {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}

/** Seconds since 1970: "14:05" of today, "12 Nov, 14:05" of this year, "12 Nov 2025, 14:05". */
export function formatDate(seconds, now = new Date()) {
  const date = new Date(seconds * 1000);
  const today = date.toDateString() === now.toDateString();
  /** @type {Intl.DateTimeFormatOptions} */
  const parts = { hour: '2-digit', minute: '2-digit' };
  if (!today) Object.assign(parts, { day: 'numeric', month: 'short' });
  if (date.getFullYear() !== now.getFullYear()) parts.year = 'numeric';
  return date.toLocaleString('en-GB', parts);
}
