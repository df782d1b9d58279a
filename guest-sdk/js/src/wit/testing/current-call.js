// Outside of a component: the host that a test made.
import { ask } from '../../testing/current.js';

export const deadlineMs = ask('current-call', 'deadlineMs');
export const traceparent = ask('current-call', 'traceparent');
export const header = ask('current-call', 'header');
export const setContentType = ask('current-call', 'setContentType');
export const replyWhenApplied = ask('current-call', 'replyWhenApplied');
