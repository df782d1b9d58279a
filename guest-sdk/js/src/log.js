// Structured log lines. In a component `console` comes here too.

import * as wit from '#wit/log';

/** Lines of a stack that the log gets. */
const STACK_MAX_LINES = 24;

export const enabled = (level) => wit.enabled(level);
export const trace = (message, fields) => write('trace', message, fields);
export const debug = (message, fields) => write('debug', message, fields);
export const info = (message, fields) => write('info', message, fields);
export const warn = (message, fields) => write('warn', message, fields);
export const error = (message, fields) => write('error', message, fields);

function write(level, message, fields = {}) {
  if (!wit.enabled(level)) return;
  const pairs = Object.entries(fields).map(([name, value]) => [name, shown(value)]);
  wit.write(level, shown(message), pairs);
}

/** A value as a line of a log shows it. Never throws: a log line is no reason to fail. */
export function shown(value) {
  try {
    if (typeof value === 'string') return value;
    if (value instanceof Error) return traceOf(value);
    if (typeof value !== 'object' || value === null) return String(value);
    return JSON.stringify(value, (_key, part) => (typeof part === 'bigint' ? `${part}n` : part)) ?? String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

/** Name, message and stack of an error, and of its causes. */
export function traceOf(error, depth = 0) {
  const head = `${error.name}: ${error.message}`;
  const lines = typeof error.stack === 'string' ? error.stack.trimEnd().split('\n') : [];
  // Of an endless recursion the innermost calls say it all.
  const rest = lines.length > STACK_MAX_LINES ? [`... and ${lines.length - STACK_MAX_LINES} more`] : [];
  const stack = [...lines.slice(0, STACK_MAX_LINES), ...rest].join('\n');
  // Some engines begin the stack with the message, some do not.
  const own = stack.startsWith(error.name) ? stack : `${head}\n${stack}`.trimEnd();
  const cause = error.cause instanceof Error && depth < 4 ? `\ncaused by ${traceOf(error.cause, depth + 1)}` : '';
  return own + cause;
}
