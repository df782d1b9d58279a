// Outside of a component: the host that a test made.
import { ask } from '../../testing/current.js';

export const cluster = ask('shard', 'cluster');
export const number = ask('shard', 'number');
export const count = ask('shard', 'count');
export const shardFor = ask('shard', 'shardFor');
export const node = ask('shard', 'node');
export const generation = ask('shard', 'generation');
export const module = ask('shard', 'module');
export const revision = ask('shard', 'revision');
export const options = ask('shard', 'options');
export const status = ask('shard', 'status');
export const ownedForMs = ask('shard', 'ownedForMs');
