// The commands of everything but the database.

import { cluster, context, durability, log, metrics, QuarryError, timers } from 'quarry-guest';
import { abort, allocate, recurse, spin } from './ends.js';
import { Failure, flag, invalid, number, numberOf, option, optionalNumber } from './form.js';
import type { Command } from './script.js';

/** Random bytes that a step may ask for. */
const RANDOM_MAX = 1024n;
const FOR_EVER_MS = (1n << 64n) - 1n;
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const;

const notify: Command = (script, args) => {
  const seq = args.bytes();
  durability.notifyWhenDurable(seq.length === 0 ? script.lastSeq : numberOf(seq), args.number());
  return [];
};

const setTimer: Command = (_, args) => {
  timers.set(args.text(), args.number(), args.bytes());
  return [];
};

const setDurableTimer: Command = (script, args) => script.wrote(timers.setDurable(args.text(), args.number(), args.bytes()));

const toShard: Command = (_, args) => {
  const run = cluster[args.choice(['call', 'query'])];
  const [shard, key] = [Number(args.number()), args.option()];
  const target = key === undefined ? { shard } : { shard, key };
  return [run(target, args.text(), args.bytes())];
};

const toKey: Command = (_, args) => {
  const run = cluster[args.choice(['call', 'query'])];
  const key = args.bytes();
  return [run({ key }, args.text(), args.bytes())];
};

const measure: Command = (_, args) => {
  const [what, name] = [args.choice(['describe', 'add', 'set', 'observe']), args.text()];
  if (what === 'describe') metrics.describe(name, args.text());
  else if (what === 'add') metrics.add(name, args.number(), args.pairs());
  else metrics[what](name, args.decimal(), args.pairs());
  return [];
};

const writeLog: Command = (_, args) => {
  const [level, message] = [args.choice(LEVELS), args.text()];
  const enabled = log.enabled(level);
  log[level](message, args.pairs());
  return [flag(enabled)];
};

const print: Command = () => {
  throw new QuarryError('unsupported', 'JavaScript has `console`, which the SDK hands to the log');
};

const place: Command = () => {
  const owned = context.ownedForMs();
  return [
    context.cluster(),
    number(context.shard()),
    number(context.shardCount()),
    context.node(),
    number(context.generation()),
    context.module(),
    number(context.revision()),
    JSON.stringify(context.options()),
    context.status(),
    number(owned === Infinity ? FOR_EVER_MS : owned),
  ];
};

const thisCall: Command = ({ call }, args) => {
  const name = args.text();
  return [optionalNumber(call.timeLeftMs), option(call.traceparent), option(call.header(name))];
};

const remember: Command = ({ state }, args) => {
  // A copy: what came in is part of the script.
  state.memory = args.option()?.slice() ?? state.memory;
  return [state.memory];
};

const clock: Command = () => [number(Date.now()), number(Math.round(performance.now() * 1e6))];

const random: Command = (_, args) => {
  const count = args.number();
  if (count > RANDOM_MAX) throw invalid();
  return [crypto.getRandomValues(new Uint8Array(Number(count)))];
};

const raise: Command = (_, args) => {
  const [code, message, retryable] = [args.text(), args.text(), args.flag()];
  throw new Failure(code, message, { retryable });
};

const throwError: Command = (_, args) => {
  throw new Error(args.text());
};

export const SURROUNDINGS: ReadonlyMap<string, Command> = new Map(
  Object.entries<Command>({
    'durability.durable-seq': () => [number(durability.durableSeq())],
    'durability.notify-when-durable': notify,
    'timers.set': setTimer,
    'timers.set-durable': setDurableTimer,
    'timers.cancel': (_, args) => [flag(timers.cancel(args.text()))],
    'timers.due-ms': (_, args) => [optionalNumber(timers.due(args.text())?.getTime())],
    cluster: toShard,
    'cluster-key': toKey,
    metrics: measure,
    log: writeLog,
    print,
    shard: place,
    'shard.shard-for': (_, args) => [number(context.shardFor(args.bytes()))],
    'current-call': thisCall,
    'current-call.set-content-type': (script, args) => {
      script.mediaType = args.text();
      return [];
    },
    'current-call.reply-when-applied': (script) => {
      script.isApplied = true;
      return [];
    },
    memory: remember,
    seen: ({ state }) => state.seen,
    clock,
    random,
    raise,
    throw: throwError,
    abort,
    recurse: () => [number(recurse(0))],
    allocate,
    spin,
  }),
);
