/**
 * Counts the bytes of the site's files that a library fetches by itself, each file when it is complete.
 * @param {RegExp} names matches the addresses that count
 * @param {(bytes: number) => void} onBytes
 * @returns {() => void} stops counting
 */
export function watchFiles(names, onBytes) {
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (names.test(entry.name)) onBytes(/** @type {PerformanceResourceTiming} */ (entry).decodedBodySize);
    }
  });
  observer.observe({ type: 'resource' });
  return () => observer.disconnect();
}
