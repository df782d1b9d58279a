// The commands of the database.

import { db, QuarryError, type Bytes } from 'quarry-guest';
import { number, numberOf, option, optionalNumber, type Args } from './form.js';
import { noHandle, type Command, type Script } from './script.js';

/** What a script opens. */
export type Handle = db.Cursor | db.Snapshot | db.Transaction;

const isCursor = (handle: Handle | undefined): handle is db.Cursor => handle !== undefined && 'next' in handle;
const isTransaction = (handle: Handle | undefined): handle is db.Transaction => handle !== undefined && 'commit' in handle;

/** Where a command goes: the database, a snapshot or a transaction. */
function on(script: Script, args: Args): typeof db | db.View {
  const at = args.bytes();
  if (at.length === 0) return db;
  const handle = script.handle(numberOf(at));
  if (handle === undefined || isCursor(handle)) throw noHandle(numberOf(at));
  return handle;
}

/** Where a write goes: undefined is the database. */
function onWriter(script: Script, args: Args): db.Transaction | undefined {
  const at = args.bytes();
  if (at.length === 0) return undefined;
  const handle = script.handle(numberOf(at));
  if (!isTransaction(handle)) throw noHandle(numberOf(at));
  return handle;
}

/** What a write gives: nothing on a transaction. */
function written(script: Script, seq: bigint | void): Bytes[] {
  return typeof seq === 'bigint' ? script.wrote(seq) : [];
}

const get: Command = (script, args) => {
  const from = on(script, args);
  return [option(from.get(args.bytes()))];
};

const getMany: Command = (script, args) => {
  const from = on(script, args);
  const keys = [];
  while (args.left) keys.push(args.bytes());
  return from.getMany(keys).map(option);
};

const getVersioned: Command = (_, args) => {
  const found = db.getVersioned(args.bytes());
  if (found === undefined) return [];
  return [found.value, number(found.seq), number(found.createdAt.getTime()), optionalNumber(found.expiresAt?.getTime())];
};

const put: Command = (script, args) => {
  const to = onWriter(script, args) ?? db;
  const [key, value, ttlMs] = [args.bytes(), args.bytes(), args.optionalNumber()];
  return written(script, ttlMs === undefined ? to.put(key, value) : to.put(key, value, { ttlMs }));
};

const remove: Command = (script, args) => written(script, (onWriter(script, args) ?? db).remove(args.bytes()));

const merge: Command = (script, args) => {
  const to = onWriter(script, args) ?? db;
  const [key, operand] = [args.bytes(), args.bytes()];
  return written(script, to.merge(key, operand));
};

const write: Command = (script, args) => {
  const batch = db.batch();
  while (args.left) {
    const kind = args.choice(['put', 'remove', 'merge']);
    const [key, value, ttlMs] = [args.bytes(), args.bytes(), args.optionalNumber()];
    if (kind === 'remove') batch.remove(key);
    else if (kind === 'merge') batch.merge(key, value);
    else batch.put(key, value, ttlMs === undefined ? {} : { ttlMs });
  }
  return script.wrote(batch.write());
};

const scan: Command = (script, args) => {
  const from = on(script, args);
  const [at, start, end, reverse] = [args.number(), args.option(), args.option(), isReverse(args)];
  script.open(at, from.scan({ ...(start && { start }), ...(end && { end }), reverse }));
  return [];
};

const scanPrefix: Command = (script, args) => {
  const from = on(script, args);
  const [at, prefix, reverse] = [args.number(), args.bytes(), isReverse(args)];
  script.open(at, from.scan({ prefix, reverse }));
  return [];
};

function isReverse(args: Args): boolean {
  return args.choice(['ascending', 'descending']) === 'descending';
}

const next: Command = (script, args) => {
  const at = args.number();
  const cursor = script.handle(at);
  if (!isCursor(cursor)) throw noHandle(at);
  const most = args.number();
  const values = [];
  // Not by `for`, which closes a cursor that it leaves.
  for (let count = 0n; count < most; count += 1n) {
    const { done, value } = cursor.next();
    if (done) break;
    values.push(...value);
  }
  return values;
};

const page: Command = () => {
  throw new QuarryError('unsupported', 'the SDK has cursors, whose pages it takes by itself');
};

const openSnapshot: Command = (script, args) => {
  const at = args.number();
  const snapshot = db.snapshot();
  script.open(at, snapshot);
  return [number(snapshot.seq)];
};

const begin: Command = (script, args) => {
  const [at, isolation] = [args.number(), args.choice(['snapshot', 'serializable'])];
  script.open(at, db.begin({ isolation }));
  return [];
};

const commit: Command = (script, args) => {
  const at = args.number();
  const transaction = script.handle(at);
  if (!isTransaction(transaction)) throw noHandle(at);
  const seq = transaction.commit();
  if (seq !== undefined) script.wrote(seq);
  return [optionalNumber(seq)];
};

const drop: Command = (script, args) => {
  script.close(args.number());
  return [];
};

export const DATABASE: ReadonlyMap<string, Command> = new Map(
  Object.entries({
    'db.get': get,
    'db.get-many': getMany,
    'db.get-versioned': getVersioned,
    'db.put': put,
    'db.remove': remove,
    'db.merge': merge,
    'db.write': write,
    'db.scan': scan,
    'db.scan-prefix': scanPrefix,
    'cursor.next': next,
    'cursor.page': page,
    'db.open-snapshot': openSnapshot,
    'db.begin': begin,
    'transaction.commit': commit,
    drop,
  }),
);
