// `Date` as a guest sees it in a test: the time of its host, which moves when the test says so. Everyone else's goes on.

import { AsyncLocalStorage } from 'node:async_hooks';

const Real = globalThis.Date;
/** Where the present comes from; it goes along with code that awaits. */
const present = new AsyncLocalStorage();
const now = () => (present.getStore() ?? Real.now)();

// Dates that it makes are dates like any others.
globalThis.Date = new Proxy(Real, {
  apply: () => new Real(now()).toString(),
  construct: (target, args, made) => Reflect.construct(target, args.length === 0 ? [now()] : args, made),
  get: (target, name) => (name === 'now' ? now : Reflect.get(target, name)),
});

/** Runs code, with all that it awaits, in which `Date` takes the present from `now`, in milliseconds. */
export function withNow(now, body) {
  return present.run(now, body);
}
