// In a component: the host itself.
export { deadlineMs, traceparent, header, setContentType, replyWhenApplied } from 'quarry:shard/current-call@0.1.0';
