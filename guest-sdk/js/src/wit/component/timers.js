// In a component: the host itself.
export { set, setDurable, cancel, dueMs } from 'quarry:shard/timers@0.1.0';
