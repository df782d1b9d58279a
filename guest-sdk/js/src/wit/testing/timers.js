// Outside of a component: the host that a test made.
import { ask } from '../../testing/current.js';

export const set = ask('timers', 'set');
export const setDurable = ask('timers', 'setDurable');
export const cancel = ask('timers', 'cancel');
export const dueMs = ask('timers', 'dueMs');
