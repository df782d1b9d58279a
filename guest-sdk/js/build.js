// Builds the component of a project: node build.js --out FILE [--entry FILE]. `quarry build` runs it in the project's folder.
//
// Types are checked (TypeScript only), everything is bundled into one file, and the world of the component is made from what is used: of
// the host's interfaces those that the bundle still imports, and of the optional exports those that the guest has. A guest with `fetch` exports
// `wasi:http/incoming-handler` too, and only its component imports anything of HTTP.

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import * as util from 'node:util';

const ENTRIES = ['src/app.ts', 'src/app.js'];
const ENDS = 'the guest has to end in `export default defineGuest({ calls: { ... } })`';
const PACKAGE = 'quarry:shard';
const VERSION = '0.1.0';
/** What `src/incoming.js` imports; its version is that of the engine. */
const HTTP_TYPES = 'wasi:http/types@0.2.10';
const HTTP_HANDLER = 'wasi:http/incoming-handler@0.2.10';

const AT_BUILD = 'which happens when it is built; ask in `start` or in a handler';

const home = process.cwd();
const sdk = dirname(realpathSync(fileURLToPath(import.meta.url)));

/** A fault of the project's, whose text says it all. */
class Fault extends Error {}

try {
  await main();
} catch (error) {
  process.stderr.write(`${error instanceof Fault ? error.message : error.stack}\n`);
  process.exitCode = 1;
}

async function main() {
  if (Number(process.versions.node.split('.')[0]) < 20) {
    const install = 'apt-get install nodejs npm (where that is older: https://nodejs.org)';
    throw new Fault(`the build needs Node.js 20 or later, and this is ${process.versions.node}; install it with: ${install}`);
  }
  const { values } = util.parseArgs({ options: { out: { type: 'string' }, entry: { type: 'string' } } });
  const out = resolve(values.out ?? 'target/guest.wasm');
  const entry = entryOf(values.entry);
  const work = join(home, 'target/quarry');
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work, { recursive: true });

  if (existsSync('tsconfig.json')) {
    say('checking types');
    check();
  }
  say('bundling');
  const { exported, isHttp } = await exportsOfGuest(entry, work);
  const imported = await bundle(entry, exported, isHttp, work);
  const wit = makeWorld(imported, exported, isHttp, work);
  say(`making the component: ${['handler', ...exported, ...(isHttp ? ['wasi:http/incoming-handler'] : [])].join(', ')}`);
  const component = await componentize(join(work, 'component.js'), wit, isHttp);
  mkdirSync(dirname(out), { recursive: true });
  // Whole or not at all: `quarry dev` may be reading the one before.
  writeFileSync(`${out}.part`, component);
  renameSync(`${out}.part`, out);
}

function entryOf(given) {
  const found = given === undefined ? ENTRIES.find((path) => existsSync(path)) : given;
  if (found === undefined || !existsSync(found)) {
    throw new Fault(`there is no ${given ?? ENTRIES.join(' or ')}: it is what the guest begins with`);
  }
  return resolve(found);
}

/** The project's own type checker, with its own text. */
function check() {
  const script = join(folderOf('typescript'), 'bin/tsc');
  const ran = spawnSync(process.execPath, [script, '-p', '.', '--noEmit', '--pretty', String(isColored())], { encoding: 'utf8' });
  process.stderr.write(ran.stdout + ran.stderr);
  if (ran.status === 0) return;
  // A test that imports the guest is the first to miss its export.
  throw new Fault(ran.stdout.includes('error TS1192') ? `the types do not fit; ${ENDS}` : 'the types do not fit');
}

/** Runs the guest's own code here, outside of a host, to see which of the optional exports it has. */
async function exportsOfGuest(entry, work) {
  const file = join(work, 'probe.mjs');
  const source = `import * as guest from ${JSON.stringify(entry)};\nexport { guest };\n`;
  await rolled('probe', source, file, {}, { sourcemap: 'inline' });
  const name = relative(home, entry);
  let guest;
  try {
    process.setSourceMapsEnabled(true);
    guest = (await import(pathToFileURL(file))).guest.default;
    if (typeof guest?.exported === 'function') return { exported: guest.exported(), isHttp: guest.answersHttp() };
  } catch (error) {
    throw new Fault(`${name} cannot be loaded:\n${whereOf(error)}`);
  }
  const what = guest === undefined ? 'exports no default' : 'exports a default that is no guest';
  throw new Fault(`${name} ${what}: ${ENDS}`);
}

/** What the guest threw, and where in its own files. */
function whereOf(error) {
  if (!(error instanceof Error)) return `thrown: ${String(error)}`;
  const frames = (error.stack ?? '').split('\n').filter((line) => /^ +at /.test(line));
  const own = frames.map((line) => line.replace(pathToFileURL(`${home}/`).href, '').replace(`${home}/`, ''));
  const shown = own.filter((line) => !/node:|:\/\/|quarry_guest\/|guest-sdk\/|node_modules\/|target\/quarry\/|[( ]\//.test(line));
  const hint = error.code === 'closed' ? [`the guest asks the host while its modules are loaded, ${AT_BUILD}`] : [];
  return [`${error.name}: ${error.message}`, ...shown, ...hint].join('\n');
}

/** Bundles the component's source, and tells which interfaces of the host it imports. */
async function bundle(entry, exported, isHttp, work) {
  const names = ['handler', ...exported].map(camel).join(', ');
  const lines = [
    `import { exportsOf, logConsole } from ${JSON.stringify(join(sdk, 'src/component.js'))};`,
    `import guest from ${JSON.stringify(entry)};`,
    'logConsole();',
    'const made = exportsOf(guest);',
    `export const { ${names} } = made;`,
  ];
  if (isHttp) {
    lines.push(`import { incoming } from ${JSON.stringify(join(sdk, 'src/incoming.js'))};`, 'export const incomingHandler = incoming(made);');
  }
  const file = join(work, 'component.js');
  const options = { conditionNames: ['quarry-component', 'import', 'default'] };
  const imports = await rolled('component', lines.join('\n'), file, options);
  return imports.filter((name) => name !== HTTP_TYPES).map((name) => name.slice(PACKAGE.length + 1).split('@')[0]);
}

/** Bundles a source into one file, and tells what it imports from outside. */
async function rolled(name, source, file, resolveOptions, outputOptions = {}) {
  const { rolldown } = await import(pathToFileURL(join(folderOf('rolldown'), 'dist/index.mjs')));
  const id = `\0quarry-${name}`;
  let imports;
  const own = {
    name: 'quarry',
    resolveId: (wanted) => (wanted === id ? id : undefined),
    load: (wanted) => (wanted === id ? source : undefined),
  };
  try {
    const made = await rolldown({
      input: id,
      cwd: home,
      platform: 'neutral',
      plugins: [own],
      resolve: { mainFields: ['module', 'main'], ...resolveOptions },
      external: [/^quarry:/, /^wasi:/, /^node:/],
      treeshake: { moduleSideEffects: [{ external: true, sideEffects: false }] },
      transform: { target: 'es2022' },
      onLog(level, log) {
        if (level === 'warn') process.stderr.write(`${log.message}\n`);
      },
    });
    const { output } = await made.write({ file, format: 'esm', codeSplitting: false, ...outputOptions });
    await made.close();
    imports = [...new Set(output.flatMap((chunk) => chunk.imports ?? []))];
  } catch (error) {
    throw new Fault(error.message);
  }
  const foreign = imports.find((name) => !name.startsWith(`${PACKAGE}/`) && name !== HTTP_TYPES);
  if (foreign === undefined) return imports;
  const hint = foreign.startsWith('node:') ? ': a guest has nothing of Node.js' : '';
  throw new Fault(`\`${foreign}\` cannot be imported in a component${hint}`);
}

/** Writes the WIT of this component, and gives its folder. */
function makeWorld(imported, exported, isHttp, work) {
  const wit = join(work, 'wit');
  cpSync(partOfSdk('wit'), join(wit, 'deps/quarry-shard'), { recursive: true });
  const line = (verb) => (name) => `  ${verb} ${PACKAGE}/${name}@${VERSION};`;
  const lines = [...imported.sort().map(line('import')), ...['handler', ...exported].map(line('export'))];
  if (isHttp) {
    cpSync(partOfSdk('wasi'), join(wit, 'deps'), { recursive: true });
    lines.push(`  import ${HTTP_TYPES};`, `  export ${HTTP_HANDLER};`);
  }
  writeFileSync(join(wit, 'world.wit'), `package quarry:project;\n\nworld guest {\n${lines.join('\n')}\n}\n`);
  return wit;
}

/** A folder that the SDKs of all languages share: inside of this one in a project, beside it in the repository. */
function partOfSdk(name) {
  const found = [join(sdk, name), join(sdk, '..', name)].find((folder) => existsSync(folder));
  if (found === undefined) throw new Fault(`the SDK at ${sdk} has no ${name} folder`);
  return found;
}

async function componentize(sourcePath, witPath, isHttp) {
  const script = join(folderOf('@bytecodealliance/componentize-js'), 'src/componentize.js');
  const tool = await import(pathToFileURL(script));
  try {
    const made = await tool.componentize({
      sourcePath: relative(home, sourcePath),
      witPath,
      worldName: 'guest',
      disableFeatures: isHttp ? ['fetch-event'] : ['http', 'fetch-event'],
    });
    return made.component;
  } catch (error) {
    throw new Fault(told(error.message));
  }
}

/** What componentize-js says, with what is usually meant by it. */
function told(message) {
  const unknown = /attempted to call an unknown imported function: '(wasi:(random|clocks)[^']*|quarry:[^']*)'/.exec(message);
  if (unknown === null) return message;
  const what = { random: 'a random number', clocks: 'the time' }[unknown[2]] ?? `the host (${unknown[1]})`;
  return `the guest asks for ${what} while its modules are loaded, ${AT_BUILD}`;
}

/** A package of the project, in its own `node_modules` or one above. */
function folderOf(name) {
  for (let folder = home; ; folder = dirname(folder)) {
    const found = join(folder, 'node_modules', name);
    if (existsSync(found)) return found;
    if (dirname(folder) === folder) throw new Fault(`${name} is missing; install it with: npm ci`);
  }
}

function camel(name) {
  return name.replace(/-(.)/g, (_, letter) => letter.toUpperCase());
}

function isColored() {
  return process.env.FORCE_COLOR === '1';
}

function say(line) {
  process.stderr.write(`${line}\n`);
}
