// Outside of a component: the host that a test made.
import { ask } from '../../testing/current.js';

export const describe = ask('metrics', 'describe');
export const add = ask('metrics', 'add');
export const set = ask('metrics', 'set');
export const observe = ask('metrics', 'observe');
