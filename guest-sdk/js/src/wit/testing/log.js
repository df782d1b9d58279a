// Outside of a component: the host that a test made.
import { ask } from '../../testing/current.js';

export const enabled = ask('log', 'enabled');
export const write = ask('log', 'write');
