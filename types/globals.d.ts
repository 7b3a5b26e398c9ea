/** What the page puts on `window` for the console and the tests (web/main.js). */
interface Window {
  sonata: any;
}

/** web/vendor/chart.umd.min.js, which is no module. */
declare const Chart: any;

/** web/vendor/katex/katex.min.js, which is no module. */
declare const katex: any;

/** Grammars of highlight.js, and its core. */
declare module '*.min.js' {
  const library: any;
  export default library;
}
