// Outside of a component: the host that a test made.
import { ask } from '../../testing/current.js';

export const call = ask('cluster', 'call');
export const callKey = ask('cluster', 'callKey');
export const query = ask('cluster', 'query');
export const queryKey = ask('cluster', 'queryKey');
