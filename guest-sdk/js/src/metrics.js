// The guest's own metrics, on the node's `/metrics` as `quarry_guest_NAME`. What is over a bound is dropped and counted by the host.

import * as wit from '#wit/metrics';
import { u64 } from './bytes.js';

export function describe(name, help) {
  wit.describe(String(name), String(help));
}

export function add(counter, by = 1, labels = {}) {
  wit.add(String(counter), pairs(labels), u64(by, '`by`'));
}

export function set(gauge, value, labels = {}) {
  wit.set(String(gauge), pairs(labels), Number(value));
}

export function observe(histogram, value, labels = {}) {
  wit.observe(String(histogram), pairs(labels), Number(value));
}

function pairs(labels) {
  return Object.entries(labels).map(([name, value]) => [name, String(value)]);
}
