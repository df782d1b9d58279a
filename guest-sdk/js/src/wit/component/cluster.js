// In a component: the host itself.
export { call, callKey, query, queryKey } from 'quarry:shard/cluster@0.1.0';
