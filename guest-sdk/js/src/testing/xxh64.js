// The hash that says which shard a key belongs to: xxh64 with seed 0.

const MASK = (1n << 64n) - 1n;
const P1 = 0x9e3779b185ebca87n;
const P2 = 0xc2b2ae3d27d4eb4fn;
const P3 = 0x165667b19e3779f9n;
const P4 = 0x85ebca77c2b2ae63n;
const P5 = 0x27d4eb2f165667c5n;

/** xxh64 of bytes, with seed 0. */
export function xxh64(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  let hash = P5;
  if (bytes.length >= 32) {
    const lanes = [(P1 + P2) & MASK, P2, 0n, -P1 & MASK];
    for (; at + 32 <= bytes.length; at += 32) {
      for (let lane = 0; lane < 4; lane += 1) lanes[lane] = round(lanes[lane], view.getBigUint64(at + lane * 8, true));
    }
    hash = (rotate(lanes[0], 1n) + rotate(lanes[1], 7n) + rotate(lanes[2], 12n) + rotate(lanes[3], 18n)) & MASK;
    for (const lane of lanes) hash = ((hash ^ round(0n, lane)) * P1 + P4) & MASK;
  }
  hash = (hash + BigInt(bytes.length)) & MASK;
  for (; at + 8 <= bytes.length; at += 8) hash = (rotate(hash ^ round(0n, view.getBigUint64(at, true)), 27n) * P1 + P4) & MASK;
  if (at + 4 <= bytes.length) {
    hash = (rotate(hash ^ ((BigInt(view.getUint32(at, true)) * P1) & MASK), 23n) * P2 + P3) & MASK;
    at += 4;
  }
  for (; at < bytes.length; at += 1) hash = (rotate(hash ^ ((BigInt(bytes[at]) * P5) & MASK), 11n) * P1) & MASK;
  hash = ((hash ^ (hash >> 33n)) * P2) & MASK;
  hash = ((hash ^ (hash >> 29n)) * P3) & MASK;
  return hash ^ (hash >> 32n);
}

function round(lane, input) {
  return (rotate((lane + input * P2) & MASK, 31n) * P1) & MASK;
}

function rotate(value, by) {
  return ((value << by) | (value >> (64n - by))) & MASK;
}
