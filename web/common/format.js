/** Numbers, sizes and times as the user's language writes them. Units are the international signs, the same everywhere. */
import { currentLanguage, t } from '../i18n/i18n.js';

const DATES = { en: 'en-GB' }; // "12 Nov", which cannot be read as the 11th of December
const CLOCK_MS = 0.1; // steps of a browser's clock if the page is not isolated

/** "1,240", "1.240" @param {number} value @param {number} [digits] exactly as many after the point */
export function formatNumber(value, digits = 0) {
  return numbers({ minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
}

/** "0.042", "3.14", "142" */
export function formatRounded(value) {
  return numbers({ maximumSignificantDigits: 3 }).format(value);
}

/** "42.1 of 98.4 MB", or "42.1 MB" if the total is unknown. A megabyte is 1,000,000 bytes. */
export function formatProgress(done, total) {
  const megabytes = (bytes) => formatNumber(bytes / 1e6, 1);
  return total ? t('loading.bytes', { done: megabytes(done), total: `${megabytes(total)} MB` }) : `${megabytes(done)} MB`;
}

/** "0.82 tok/s", "12.3 tok/s", "214 tok/s" */
export function formatRate(tokensPerSecond) {
  return `${formatNumber(tokensPerSecond, tokensPerSecond < 1 ? 2 : tokensPerSecond < 100 ? 1 : 0)} tok/s`;
}

/** "4.2 µs", "310 µs", "12.5 ms" */
export function formatMicroseconds(us) {
  const [value, unit] = us < 1000 ? [us, 'µs'] : [us / 1000, 'ms'];
  return `${formatNumber(value, value < 100 ? 1 : 0)} ${unit}`;
}

/** "0%", "0.4%", "41%" @param {number} share @param {number} [digits] after the point */
export function formatShare(share, digits = share >= 0.0005 && share < 0.01 ? 1 : 0) {
  return numbers({ style: 'percent', minimumFractionDigits: digits, maximumFractionDigits: digits }).format(share);
}

/** A speed of {gb_s, gflop_s} in words: "5.2 GB/s" or "2.7 TB/s" for memory, "310 GFLOP/s" for computing. */
export function formatSpeed(limit, { gb_s: gigabytes, gflop_s: gigaflops }) {
  const [speed, unit] = limit === 'memory' ? [gigabytes, 'B/s'] : [gigaflops, 'FLOP/s'];
  const [value, prefix] = speed < 1000 ? [speed, 'G'] : [speed / 1000, 'T'];
  return `${formatNumber(value, value < 100 ? 1 : 0)} ${prefix}${unit}`;
}

/** Milliseconds: "0 ms", "310 µs", "12.5 ms", "8.4 s", "2 min 5 s" */
export function formatDuration(ms) {
  if (ms === 0) return '0 ms';
  if (ms < 1000) return formatMicroseconds(ms * 1000);
  const seconds = ms / 1000;
  if (seconds < 60) return `${formatNumber(seconds, 1)} s`;
  return `${formatNumber(Math.floor(seconds / 60))} min ${Math.floor(seconds % 60)} s`;
}

/** Milliseconds that were measured: as `formatDuration`, but "under 0.1 ms" if the browser's clock is too coarse. */
export function formatMeasured(ms) {
  return ms < CLOCK_MS ? t('log.under', { time: `${formatNumber(CLOCK_MS, 1)} ms` }) : formatDuration(ms);
}

/** "3 s", "2 min 5 s": at least a second, and whole ones */
export function formatSeconds(seconds) {
  const whole = Math.max(1, Math.round(seconds));
  return whole < 60 ? `${whole} s` : formatDuration(1000 * whole);
}

/** "512 B", "12.4 kB", "98.4 MB", "1.2 GB". A kilobyte is 1,000 bytes. */
export function formatBytes(bytes) {
  const units = ['B', 'kB', 'MB', 'GB'];
  const power = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), 3);
  return `${formatNumber(bytes / 1000 ** power, power ? 1 : 0)} ${units[power]}`;
}

/** Seconds since 1970: "14:05" of today, "12 Nov, 14:05" of this year, "12 Nov 2025, 14:05". */
export function formatDate(seconds, now = new Date()) {
  const date = new Date(seconds * 1000);
  const today = date.toDateString() === now.toDateString();
  /** @type {Intl.DateTimeFormatOptions} */
  const parts = { hour: '2-digit', minute: '2-digit' };
  if (!today) Object.assign(parts, { day: 'numeric', month: 'short' });
  if (date.getFullYear() !== now.getFullYear()) parts.year = 'numeric';
  return new Intl.DateTimeFormat(DATES[currentLanguage()] ?? currentLanguage(), parts).format(date);
}

/** Seconds since 1970: "12 Nov" */
export function formatDay(seconds) {
  return new Intl.DateTimeFormat(DATES[currentLanguage()] ?? currentLanguage(), { day: 'numeric', month: 'short' }).format(1000 * seconds);
}

/** @param {Intl.NumberFormatOptions} options */
function numbers(options) {
  return new Intl.NumberFormat(currentLanguage(), options);
}
