/**
 * Joins the modules of a site with esbuild. Standard input: JSON {files: {path in the site: file on disk}, pages: [path],
 * workers: [path], apart: [beginning of a path]}. Standard output: JSON {files: {path: text}, modules: [path],
 * preload: [path]}, as app/building/site/bundle.py says.
 */
import { readFile } from 'node:fs/promises';
import { posix } from 'node:path';
import { build } from 'esbuild';

const FOLDER = 'bundle';
let input = '';
for await (const chunk of process.stdin) input += chunk;
const { files, pages, workers, apart } = JSON.parse(input);

/** The site's modules as esbuild's. `folder`: where what is made lies; addresses stay those of the files of the site. */
const siteModules = (folder) => ({
  name: 'site',
  setup(builder) {
    builder.onResolve({ filter: /.*/ }, ({ path, importer, kind }) => {
      if (kind === 'entry-point') return { path, namespace: 'site' };
      const target = posix.join(posix.dirname(importer), path);
      const there = posix.relative(folder, target);
      if (apart.some((beginning) => target.startsWith(beginning))) return { path: there.startsWith('.') ? there : `./${there}`, external: true };
      if (!(target in files)) return { errors: [{ text: `${importer} imports ${path}, which the site does not have` }] };
      return { path: target, namespace: 'site' };
    });
    builder.onLoad({ filter: /.*/, namespace: 'site' }, async ({ path }) => {
      const text = await readFile(files[path], 'utf8');
      const address = `new URL(${JSON.stringify(posix.relative(folder, path))}, import.meta.url).href`;
      return { contents: text.replaceAll('import.meta.url', address), loader: 'js' };
    });
  },
});

const made = {};
const modules = new Set();

async function join(entries, folder, options) {
  const { outputFiles, metafile } = await build({
    entryPoints: entries, bundle: true, format: 'esm', target: 'es2022', charset: 'utf8', legalComments: 'inline',
    sourcemap: 'linked', write: false, metafile: true, outdir: `/${folder}`, logLevel: 'error', absWorkingDir: '/',
    plugins: [siteModules(folder)], ...options,
  });
  for (const { path, text } of outputFiles) made[path.slice(1)] = text;
  for (const input of Object.keys(metafile.inputs)) modules.add(input.replace(/^site:/, ''));
  return metafile.outputs;
}

/** The imports at the beginning of an output, and their own. */
function eager(outputs, path, found = new Set()) {
  for (const { path: next, kind, external } of outputs[path].imports) {
    if (kind !== 'import-statement' || external || found.has(next)) continue;
    found.add(next);
    eager(outputs, next, found);
  }
  return found;
}

const outputs = await join(pages, FOLDER, { splitting: true, entryNames: '[name]', chunkNames: '[name]-[hash]' });
const preload = pages.flatMap((page) => [...eager(outputs, `${FOLDER}/${posix.basename(page)}`)]);
for (const worker of workers) await join([worker], posix.dirname(worker), { entryNames: '[name]' });

for (const path of workers) modules.delete(path);
process.stdout.write(JSON.stringify({ files: made, modules: [...modules].sort(), preload: [...new Set(preload)].sort() }));
