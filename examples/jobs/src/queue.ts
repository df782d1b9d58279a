// Jobs: stored, timed, run.

import { context, db, log, metrics, QuarryError, timers, toJson, type Call, type Reply, type Timer } from 'quarry-guest';

import { backoffMs, settingsOf } from './options.js';
import { listed } from './pages.js';
import { fieldsOf, keyOf, named, whole } from './request.js';
import { Hopeless, KINDS } from './work.js';

/** `waiting` for its timer, or over. */
export type State = 'waiting' | 'done' | 'dead' | 'cancelled';
const STATES: State[] = ['waiting', 'done', 'dead', 'cancelled'];

export interface Job {
  id: string;
  kind: string;
  input: unknown;
  state: State;
  /** How often it was begun. */
  attempts: number;
  /** What the last attempt gave, or why it failed. */
  result?: unknown;
  error?: string;
}

const MAX_INPUT_BYTES = 64 * 1024;
const MAX_DELAY_MS = 365 * 86_400_000;

export function enqueue(call: Call): object {
  const queue = keyOf(call, 'a queue');
  const given = fieldsOf(call, 'id', 'kind', 'input', 'delay_ms');
  const id = named('`id`', given.id ?? call.header('idempotency-key'));
  const delayMs = whole('`delay_ms`', given.delay_ms ?? 0, 0, MAX_DELAY_MS);
  const { kind, input = null } = given;
  if (typeof kind !== 'string' || !Object.hasOwn(KINDS, kind)) {
    throw QuarryError.invalidPayload(`\`kind\` is one of ${Object.keys(KINDS).join(', ')}, not ${JSON.stringify(kind)}`);
  }
  const size = toJson(input).length;
  if (size > MAX_INPUT_BYTES) throw QuarryError.invalidPayload(`\`input\` has up to ${MAX_INPUT_BYTES} bytes, not ${size}`);

  const there = find(queue, id);
  if (there !== undefined) {
    if (there.kind === kind && JSON.stringify(there.input) === JSON.stringify(input)) return shown(queue, there);
    throw new QuarryError('id-taken', `job \`${id}\` is in queue \`${queue}\` already, and is another one`);
  }
  const job: Job = { id, kind, input, state: 'waiting', attempts: 0 };
  // The timer first. Where a crash comes between the two writes, a timer without a job does nothing; a job without a timer would wait for ever.
  timers.setDurable(timerOf(queue, id), delayMs);
  store(queue, job);
  return shown(queue, job);
}

export function cancel(call: Call): object {
  const { queue, job } = wanted(call);
  if (job.state !== 'waiting') throw new QuarryError('not-waiting', `job \`${job.id}\` is ${job.state}, and cannot be cancelled`);
  const cancelled: Job = { ...job, state: 'cancelled' };
  store(queue, cancelled);
  timers.cancel(timerOf(queue, job.id));
  return shown(queue, cancelled);
}

export function retry(call: Call): object {
  const { queue, job } = wanted(call);
  if (job.state !== 'dead') throw new QuarryError('not-dead', `job \`${job.id}\` is ${job.state}: only one that is dead is tried again`);
  const waiting: Job = { ...job, state: 'waiting', attempts: 0 };
  timers.setDurable(timerOf(queue, job.id), 0);
  store(queue, waiting);
  return shown(queue, waiting);
}

export function status(call: Call): object {
  const { queue, job } = wanted(call);
  return shown(queue, job);
}

export function list(call: Call): Reply {
  const queue = keyOf(call, 'a queue');
  const given = fieldsOf(call, 'state', 'after', 'limit');
  if (given.state !== undefined && !STATES.includes(given.state as State)) {
    throw QuarryError.invalidPayload(`\`state\` is one of ${STATES.join(', ')}, not ${JSON.stringify(given.state)}`);
  }
  return listed<Job>(keyOfJob(queue, ''), given, (job) => (given.state === undefined || job.state === given.state ? shown(queue, job) : undefined));
}

/** Makes an attempt. The host fires a timer at least once: a job that is over, or never came to be, has nothing left to do. */
export function run(timer: Timer): void {
  const [queue, id] = timer.name.split('/') as [string, string];
  const before = find(queue, id);
  if (before?.state !== 'waiting') return;
  const settings = settingsOf(context.options());
  if (before.attempts >= settings.max_attempts) {
    // The last attempt began, and did not come to an end: a trap, or a crash.
    return end(queue, { ...before, state: 'dead', error: before.error ?? 'its attempts did not come to an end' }, 'dead');
  }
  const job: Job = { ...before, attempts: before.attempts + 1 };
  store(queue, job);
  const effects = db.batch();
  let result: unknown;
  try {
    result = KINDS[job.kind]!({ ...job, queue }, effects);
  } catch (error) {
    return failed(queue, job, error);
  }
  const { error: _, ...done } = job;
  // The effects and the end of the job are one write: both happened, or neither.
  effects.putJson(keyOfJob(queue, id), { ...done, state: 'done', result }, { ttlMs: settings.keep_ms }).write();
  metrics.add('jobs_attempts', 1, { outcome: 'done' });
}

function failed(queue: string, job: Job, thrown: unknown): void {
  const settings = settingsOf(context.options());
  const error = thrown instanceof Error ? thrown.message : String(thrown);
  log.warn('an attempt failed', { queue, job: job.id, attempt: job.attempts, error });
  if (thrown instanceof Hopeless || job.attempts >= settings.max_attempts) return end(queue, { ...job, state: 'dead', error }, 'dead');
  end(queue, { ...job, error }, 'retried');
  // Set within `fire`, it takes the place of the timer that fired.
  timers.setDurable(timerOf(queue, job.id), backoffMs(settings, job.attempts));
}

function end(queue: string, job: Job, outcome: string): void {
  store(queue, job);
  metrics.add('jobs_attempts', 1, { outcome });
}

/** The job that a call names. */
function wanted(call: Call): { queue: string; job: Job } {
  const queue = keyOf(call, 'a queue');
  const id = named('`id`', fieldsOf(call, 'id').id);
  const job = find(queue, id);
  if (job === undefined) throw new QuarryError('unknown-job', `there is no job \`${id}\` in queue \`${queue}\``);
  return { queue, job };
}

function find(queue: string, id: string): Job | undefined {
  return db.getJson<Job>(keyOfJob(queue, id));
}

/** What is waiting or dead stays until someone deals with it, the rest for a while. */
function store(queue: string, job: Job): void {
  const isKept = job.state === 'waiting' || job.state === 'dead';
  db.putJson(keyOfJob(queue, job.id), job, isKept ? {} : { ttlMs: settingsOf(context.options()).keep_ms });
}

function shown(queue: string, job: Job): object {
  const due = job.state === 'waiting' ? timers.due(timerOf(queue, job.id)) : undefined;
  return due === undefined ? job : { ...job, due: due.toISOString() };
}

const keyOfJob = (queue: string, id: string) => `job/${queue}/${id}`;
const timerOf = (queue: string, id: string) => `${queue}/${id}`;
