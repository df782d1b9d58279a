// In a component: the host itself.
export { enabled, write } from 'quarry:shard/log@0.1.0';
