/* What must be known before the first paint, so that nothing jumps: theme, size of the text, and whether the side bar is open. */
try {
  const { dataset } = document.documentElement;
  for (const [name, values] of [['theme', ['light', 'dark']], ['text', ['small', 'large', 'larger']], ['sidebar', ['closed']]]) {
    const kept = localStorage.getItem(`sonata.${name}`);
    if (values.includes(kept)) dataset[name] = kept;
  }
} catch { /* the browser forbids the page to store anything */ }
