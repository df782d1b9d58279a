// In a component: the host itself.
export { describe, add, set, observe } from 'quarry:shard/metrics@0.1.0';
