/**
 * Without input: prints, as JSON, the regular expressions of the page's JavaScript, [{path, line, source, flags}].
 * With such a list on stdin, each with `texts` ([lead, repeated, times, end]): prints those that take longer than MS for one.
 * node --expose-internals patterns_in_code.cjs WEB [MS]
 */
const { readdirSync, readFileSync } = require('node:fs');
const { join, relative } = require('node:path');
const vm = require('node:vm');

const { parse } = require('internal/deps/acorn/acorn/dist/acorn');

const [, , web, ms] = process.argv;

console.log(JSON.stringify(ms ? slow(JSON.parse(readFileSync(0, 'utf-8'))) : [...patterns()]));

function* patterns() {
  for (const name of readdirSync(web, { recursive: true })) {
    if (!name.endsWith('.js') || name.startsWith('vendor')) continue;
    const found = [];
    const onToken = ({ type, value, loc }) => {
      if (type.label === 'regexp') found.push({ line: loc.start.line, source: value.pattern, flags: value.flags });
    };
    parse(readFileSync(join(web, name), 'utf-8'), { ecmaVersion: 'latest', sourceType: 'module', locations: true, onToken });
    for (const one of found) yield { path: relative('.', name).replaceAll('\\', '/'), ...one };
  }
}

function slow(given) {
  return given.filter(({ source, flags, texts }) => texts.some(([lead, repeated, times, end]) => {
    const context = { text: lead + repeated.repeat(times) + end, pattern: new RegExp(source, flags) };
    try {
      vm.runInNewContext('text.replace(pattern, "")', context, { timeout: Number(ms) });
    } catch (error) {
      if (error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT') return true;
      throw error;
    }
    return false;
  })).map(({ path, line, source }) => `${path}:${line} ${source.slice(0, 80)}`);
}
