// What a guest is, and how it becomes the exports of a component.

import * as wit from '#wit/current-call';
import { bytes, received, shown } from './bytes.js';
import { Call, Reply, sync } from './call.js';
import { parsed } from './context.js';
import { Abort, QuarryError, reason } from './error.js';
import * as log from './log.js';
import { Timer } from './timer.js';

const FUNCTIONS = ['call', 'query', 'start', 'stop', 'validate', 'durable', 'fire', 'suspend', 'resume', 'migrate', 'fetch'];
const TABLES = ['calls', 'queries'];

/** The optional interfaces, and what of a guest each needs. */
const OPTIONAL = {
  queries: ['queries', 'query'],
  lifecycle: ['start', 'stop'],
  options: ['validate'],
  'durable-events': ['durable'],
  'timer-events': ['fire'],
  handoff: ['suspend', 'resume'],
  migration: ['migrate'],
};

/** A guest: made anew, by its factory, for each instance. */
export class Guest {
  #make;

  constructor(make) {
    this.#make = make;
  }

  /** The handlers of one instance. */
  instance() {
    return checked(this.#make());
  }

  /** The interfaces that a component of it exports, beside `handler`. */
  exported() {
    const handlers = this.instance();
    const names = Object.keys(OPTIONAL);
    return names.filter((name) => OPTIONAL[name].some((part) => handlers[part] !== undefined));
  }

  /** Whether a component of it exports `wasi:http/incoming-handler`. */
  answersHttp() {
    return this.instance().fetch !== undefined;
  }
}

/** Makes a guest of its handlers, or of a function that makes them for each instance. */
export function defineGuest(definition) {
  if (typeof definition === 'function') {
    if (/^class\b/.test(Function.prototype.toString.call(definition))) {
      throw new TypeError('defineGuest: a class makes no handlers: give a function that does, `() => ({ calls: { ... } })`');
    }
    return new Guest(definition);
  }
  checked(definition);
  return new Guest(() => definition);
}

/** The exports of a component, over one instance, which is made when it is first needed: not while the component is built. */
export function exportsOf(guest) {
  let made;
  const handlers = () => (made ??= guest.instance());
  return {
    handlers,
    handler: {
      call: guarded((method, key, payload) => replied(answer(handlers(), false, new Call(method, key, payload)))),
    },
    queries: {
      query: guarded((method, key, payload) => replied(answer(handlers(), true, new Call(method, key, payload)))),
    },
    lifecycle: {
      start: guarded(() => done(handlers().start?.(), '`start`')),
      stop: quiet((why) => done(handlers().stop?.(why), '`stop`')),
    },
    options: {
      validate(options) {
        try {
          done(handlers().validate(parsed(options)), '`validate`');
        } catch (error) {
          throw ended(error) ?? reason(error);
        }
      },
    },
    durableEvents: { durable: quiet((tags) => done(handlers().durable(Array.from(tags)), '`durable`')) },
    timerEvents: {
      fire: guarded((name, payload, dueMs) => done(handlers().fire(new Timer(name, payload, dueMs)), '`fire`')),
    },
    handoff: {
      suspend: guarded(() => bytes(sync(handlers().suspend(), '`suspend`'), 'what `suspend` returns')),
      resume: guarded((from, state) => done(handlers().resume(received(state), Number(from)), '`resume`')),
    },
    migration: { migrate: guarded((from) => migrated(sync(handlers().migrate(Number(from)), '`migrate`'))) },
  };
}

/** What the handlers of a guest answer to a call or a query. */
export function answer(handlers, isQuery, call) {
  const { calls = {}, queries = {} } = handlers;
  // What can be asked in a query can be asked in a call: then it waits its turn behind the writes.
  const tables = isQuery ? [queries] : [calls, queries];
  const table = tables.find((methods) => Object.hasOwn(methods, call.method));
  if (table !== undefined) return Reply.of(table[call.method](call));
  const other = isQuery ? handlers.query : (handlers.call ?? handlers.query);
  if (other === undefined) throw QuarryError.unknownMethod(call.method);
  return Reply.of(other.call(handlers, call));
}

/** Whether a migration has come to its end. */
export function migrated(isDone) {
  if (typeof isDone === 'boolean') return isDone;
  throw new QuarryError('exception', `\`migrate\` returns true when the data is migrated, or false; not ${shown(isDone)}`);
}

/**
 * The error of a guest as the host takes it. What was thrown on purpose goes to the caller as it is; anything else is a fault of the
 * guest's: its stack goes to the log, and the caller gets the code `exception`.
 */
export function recordOf(error) {
  // Of a test: a component ends before this.
  if (error instanceof Abort) return { code: 'guest-trap', message: error.why, retryable: false };
  if (error instanceof QuarryError) {
    return { code: error.code, message: error.message, retryable: error.retryable };
  }
  const message = error instanceof Error ? `${error.name}: ${error.message}` : `thrown: ${log.shown(error)}`;
  log.error(error instanceof Error ? log.traceOf(error) : message);
  return { code: 'exception', message, retryable: false };
}

function replied(reply) {
  if (reply.mediaType !== undefined) wit.setContentType(reply.mediaType);
  if (reply.isApplied) wit.replyWhenApplied();
  return reply.payload;
}

function done(value, what) {
  sync(value, what);
}

/** What an export throws that ends the instance: no record of an error, so that what runs the component gives up. */
function ended(error) {
  if (!(error instanceof Abort)) return undefined;
  log.error(error.why);
  return error;
}

/** Whatever is thrown becomes an error record: an exception is no trap, and the instance goes on. */
function guarded(body) {
  return (...args) => {
    try {
      return body(...args);
    } catch (error) {
      throw ended(error) ?? recordOf(error);
    }
  };
}

/** For exports that cannot fail: what is thrown is logged. */
function quiet(body) {
  return (...args) => {
    try {
      body(...args);
    } catch (error) {
      if (error instanceof Abort) throw ended(error);
      recordOf(error instanceof QuarryError ? new Error(`${error.code}: ${error.message}`, { cause: error }) : error);
    }
  };
}

function checked(handlers) {
  const wrong = (why) => new TypeError(`defineGuest: ${why}`);
  if (typeof handlers !== 'object' || handlers === null) {
    throw wrong('give an object of handlers, or a function that makes one');
  }
  if (typeof handlers.then === 'function') throw wrong('what makes the handlers is no async function: leave out `async`');
  for (const [name, value] of Object.entries(handlers)) {
    if (TABLES.includes(name)) {
      for (const [method, handler] of Object.entries(value ?? {})) {
        if (typeof handler !== 'function') throw wrong(`\`${name}.${method}\` is no function`);
      }
    } else if (!FUNCTIONS.includes(name)) {
      throw wrong(`a guest has no \`${name}\`: it has ${[...TABLES, ...FUNCTIONS].join(', ')}`);
    } else if (value !== undefined && typeof value !== 'function') {
      throw wrong(`\`${name}\` is no function`);
    }
  }
  const { suspend, resume } = handlers;
  if ((suspend === undefined) !== (resume === undefined)) throw wrong('`suspend` and `resume` go together');
  if (!['calls', 'queries', 'call', 'query', 'fetch'].some((name) => handlers[name] !== undefined)) {
    throw wrong('a guest answers something: give `calls`, `queries`, `call`, `query` or `fetch`');
  }
  return handlers;
}
