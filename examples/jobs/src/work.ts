// What jobs do, by kind.

import { cluster, context, db, QuarryError, toJson, type Call, type Reply } from 'quarry-guest';

import { listed } from './pages.js';
import { fields, fieldsOf, keyOf, named, whole } from './request.js';
import type { Job } from './queue.js';

/** A failure that no further attempt would mend. */
export class Hopeless extends Error {}

/** A job at work: gives its result, or throws. What it writes through `effects` is stored together with its end. */
export type Work = (job: Job & { queue: string }, effects: db.Batch) => unknown;

export const KINDS: Record<string, Work> = { tally, deliver, flaky };

/** Adds to a number in the shard of the queue: once, whatever happens. */
function tally(job: Job & { queue: string }, effects: db.Batch): unknown {
  const { name, add } = input(job, (given) => ({ name: named('`name`', given.name), add: whole('`add`', given.add, -1e9, 1e9) }), 'name', 'add');
  const key = keyOfTally(job.queue, name);
  const after = Number(db.getText(key) ?? 0) + add;
  effects.put(key, String(after));
  return after;
}

/** Brings a text to someone's inbox, in whatever shard that is. It may arrive twice, and then under one id. */
function deliver(job: Job & { queue: string }): unknown {
  const { to, text } = input(job, (given) => ({ to: named('`to`', given.to), text: given.text }), 'to', 'text');
  if (typeof text !== 'string') throw new Hopeless('`text` is a string');
  const id = `${job.queue}.${job.id}`;
  // A shard cannot call itself: it would wait for its own turn.
  if (context.shardFor(to) === context.shard()) bring(to, id, text);
  else cluster.call({ key: to }, 'receive', toJson({ id, text }));
  return `delivered to ${to}`;
}

/** Fails as often as it is told to, to see what becomes of such jobs. */
function flaky(job: Job): unknown {
  const { failures } = input(job, (given) => ({ failures: whole('`failures`', given.failures, 0, 1_000) }), 'failures');
  if (job.attempts <= failures) throw new Error(`attempt ${job.attempts} of ${failures} that fail`);
  return `attempt ${job.attempts} went well`;
}

/** The other end of `deliver`. */
export function receive(call: Call): void {
  const { id, text } = fieldsOf(call, 'id', 'text');
  if (typeof id !== 'string' || !/^[A-Za-z0-9._-]{1,201}$/.test(id)) throw QuarryError.invalidPayload('`id` names a queue and a job');
  if (typeof text !== 'string') throw QuarryError.invalidPayload('`text` is a string');
  bring(keyOf(call, 'a recipient'), id, text);
}

/** What jobs of the kind `tally` added up under a name. */
export function sum(call: Call): string {
  return db.getText(keyOfTally(keyOf(call, 'a queue'), named('`name`', fieldsOf(call, 'name').name))) ?? '0';
}

/** What jobs of the kind `deliver` brought. */
export function inbox(call: Call): Reply {
  const given = fieldsOf(call, 'after', 'limit');
  return listed<object>(keyOfInbox(keyOf(call, 'a recipient'), ''), given, (message) => message);
}

function bring(to: string, id: string, text: string): void {
  db.putJson(keyOfInbox(to, id), { id, text });
}

/** The input of a job. One that is wrong will not be right at the next attempt. */
function input<T>(job: Job, read: (given: Record<string, unknown>) => T, ...names: string[]): T {
  try {
    return read(fields('`input`', job.input, ...names));
  } catch (error) {
    throw new Hopeless(error instanceof Error ? error.message : String(error));
  }
}

const keyOfTally = (queue: string, name: string) => `tally/${queue}/${name}`;
const keyOfInbox = (to: string, id: string) => `inbox/${to}/${id}`;
