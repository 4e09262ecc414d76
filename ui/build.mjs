// Builds ui/dist from ui/src, and records from which sources: scripts/check-ui compares them. The output depends on the
// sources and on package-lock.json only.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

process.chdir(import.meta.dirname);
rmSync('dist', { recursive: true, force: true });
mkdirSync('dist');
await build({
  entryPoints: { app: 'src/main.tsx' },
  outdir: 'dist',
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  mainFields: ['module', 'main'],
  legalComments: 'none',
  logLevel: 'info',
});
for (const name of ['index.html', 'icon.svg']) cpSync(join('src', name), join('dist', name));

const bundled = Object.keys(JSON.parse(readFileSync('package.json', 'utf8')).dependencies);
const notices = bundled.map((name) => {
  const folder = join('node_modules', name);
  const licence = readdirSync(folder).find((file) => /^licen[cs]e/i.test(file));
  const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  return `${name} ${version}\n\n${readFileSync(join(folder, licence), 'utf8').trim()}\n`;
});
writeFileSync('dist/licenses.txt', notices.join(`\n${'-'.repeat(80)}\n\n`));

// The same as in scripts/check-ui: the sorted paths, each with its hash.
const files = readdirSync('src', { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath, entry.name));
const lines = [...files, 'build.mjs', 'package-lock.json', 'tsconfig.json']
  .sort()
  .map((file) => `${createHash('sha256').update(readFileSync(file)).digest('hex')}  ${file}\n`);
writeFileSync('dist/SOURCES.sha256', lines.join(''));
