// In a component: the host itself.
export { durableSeq, notifyWhenDurable } from 'quarry:shard/durability@0.1.0';
