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
