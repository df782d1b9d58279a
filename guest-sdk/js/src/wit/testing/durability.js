// Outside of a component: the host that a test made.
import { ask } from '../../testing/current.js';

export const durableSeq = ask('durability', 'durableSeq');
export const notifyWhenDurable = ask('durability', 'notifyWhenDurable');
