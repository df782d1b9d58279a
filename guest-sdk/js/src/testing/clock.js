// `Date` as a guest sees it in a test: the time of its host, which moves when the test says so.

const Real = globalThis.Date;

/** A `Date` that takes the present from `now`, in milliseconds. Dates that it makes are dates like any others. */
export function dateOf(now) {
  return new Proxy(Real, {
    apply: () => new Real(now()).toString(),
    construct: (target, args, made) => Reflect.construct(target, args.length === 0 ? [now()] : args, made),
    get: (target, name) => (name === 'now' ? now : Reflect.get(target, name)),
  });
}

/** Runs code in which `Date` is another. It does not wait for anything, so that nobody else sees that. */
export function withDate(date, body) {
  const before = globalThis.Date;
  globalThis.Date = date;
  try {
    return body();
  } finally {
    globalThis.Date = before;
  }
}
