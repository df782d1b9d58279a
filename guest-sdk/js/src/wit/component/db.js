// In a component: the host itself.
export { get, getVersioned, getMany, put, putFor, remove, merge, write, scan, scanPrefix, openSnapshot, begin } from 'quarry:shard/db@0.1.0';
