// Write the logic of a Quarry shard in JavaScript or TypeScript.

export { base64, bytes, codec, compare, concat, fromJson, text, textOrUndefined, toJson } from './bytes.js';
export { Call, Reply } from './call.js';
export { abort, QuarryError } from './error.js';
export { defineGuest } from './guest.js';
export { Timer } from './timer.js';

export * as cluster from './cluster.js';
export * as context from './context.js';
export * as db from './db.js';
export * as durability from './durability.js';
export * as log from './log.js';
export * as metrics from './metrics.js';
export * as timers from './timers.js';
