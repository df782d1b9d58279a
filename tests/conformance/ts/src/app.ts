// The guest of the conformance kit in TypeScript: what `../../README.md` says, on the guest SDK.

import { Call, db, defineGuest, type Reply, type Timer } from 'quarry-guest';
import { list, number, option } from './form.js';
import { runScript, type State } from './script.js';

export default defineGuest(() => {
  const state: State = { memory: new Uint8Array(), seen: [] };
  const note = (...event: (Uint8Array | string)[]) => void state.seen.push(list(event));
  const run = (steps: Uint8Array, call = new Call('')): Reply => runScript(steps, state, call);

  /** Runs the script under a key, and says whether there is that key. */
  const stored = (key: string): boolean => {
    const steps = db.get(key);
    if (steps !== undefined) run(steps);
    return steps !== undefined;
  };

  return {
    queries: {
      run: (call) => run(call.payload, call),
      echo: (call) => list([call.method, option(call.key), call.payload]),
    },
    start() {
      note('start');
      stored('on-start');
    },
    stop(reason) {
      // Whatever comes of either: there is nobody to tell.
      for (const step of [() => stored('on-stop'), () => db.put('stopped', reason)]) {
        try {
          step();
        } catch (error) {
          // Not an abort.
          if (!(error instanceof Error)) throw error;
        }
      }
    },
    validate(options) {
      const text = JSON.stringify(options);
      if (text.includes('"refuse"')) throw new Error(`refused: ${text}`);
    },
    durable(tags) {
      note('durable', ...tags.map(number));
    },
    fire(timer: Timer) {
      note('fire', timer.name, timer.payload, number(timer.due.getTime()));
      run(timer.payload);
    },
    suspend() {
      stored('on-suspend');
      return state.memory;
    },
    resume(memory, fromRevision) {
      note('resume', number(fromRevision));
      stored('on-resume');
      state.memory = memory;
    },
    migrate(fromRevision) {
      note('migrate', number(fromRevision));
      return !stored('on-migrate');
    },
  };
});
