// `Date` as a guest sees it in a test: the time of its host, which moves when the test says so.

const Real = globalThis.Date;

/** The machine's time. */
export const realNow = Real.now;

let isAwaited = 0;
let beforeAwaited;

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

/** The same for code that awaits, in which others run: the date has to know who asks, and is the same at each time. */
export async function whileDate(date, body) {
  if (isAwaited === 0) beforeAwaited = globalThis.Date;
  isAwaited += 1;
  globalThis.Date = date;
  try {
    return await body();
  } finally {
    isAwaited -= 1;
    if (isAwaited === 0) globalThis.Date = beforeAwaited;
  }
}
