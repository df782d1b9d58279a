// The guest's own metrics, on the node's `/metrics` as `quarry_guest_NAME`. What is over a bound is dropped and counted by the host.

import * as wit from '#wit/metrics';
import { number, string, u64 } from './bytes.js';

export function describe(name, help) {
  wit.describe(string(name, "a metric's name"), string(help, '`help`'));
}

export function add(counter, by = 1, labels = {}) {
  wit.add(string(counter, "a metric's name"), pairs(labels), u64(by, '`by`'));
}

export function set(gauge, value, labels = {}) {
  wit.set(string(gauge, "a metric's name"), pairs(labels), number(value, '`value`'));
}

export function observe(histogram, value, labels = {}) {
  wit.observe(string(histogram, "a metric's name"), pairs(labels), number(value, '`value`'));
}

function pairs(labels) {
  return Object.entries(labels).map(([name, value]) => [name, String(value)]);
}
