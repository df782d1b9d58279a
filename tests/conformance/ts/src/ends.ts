// The ways in which a guest can end.

import { abort as end } from 'quarry-guest';

/** Ends the instance at once. */
export function abort(): never {
  return end('on purpose');
}

/** Calls itself without an end. */
export function recurse(depth: number): number {
  return recurse(depth + 1) + depth;
}

/** Takes memory without an end. */
export function allocate(): never {
  const held = [];
  for (;;) held.push(new Uint8Array(1 << 20).fill(1));
}

/** Computes without an end. */
export function spin(): never {
  for (let turns = 0; ; turns += 1);
}
