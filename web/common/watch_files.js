/**
 * Counts files of the site that a library fetches by itself, each when it is complete.
 * @param {RegExp} names of the addresses that count
 * @param {(bytes: number) => void} onBytes
 * @returns {() => void} ends it
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
