// In a component: the host itself.
export { cluster, number, count, shardFor, node, generation, module, revision, options, status, ownedForMs } from 'quarry:shard/shard@0.1.0';
