// What only a component has. Part of no test: the build puts it around the guest.

import * as log from './log.js';

export { exportsOf } from './guest.js';

const LEVELS = { trace: 'trace', debug: 'debug', log: 'info', info: 'info', warn: 'warn', error: 'error' };

/** `console` goes to the guest's log, a call a line, with its level; it would come as lines of standard output and error otherwise. */
export function logConsole() {
  for (const [name, level] of Object.entries(LEVELS)) {
    console[name] = (...values) => log[level](values.map(log.shown).join(' '));
  }
  console.assert = (isTrue, ...values) => {
    if (!isTrue) log.error(['assertion failed:', ...values].map(log.shown).join(' '));
  };
}
