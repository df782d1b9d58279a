// Runs scripts: steps one after the other, with what they opened.

import { QuarryError, Reply, textOrUndefined, type Bytes, type Call } from 'quarry-guest';
import { DATABASE, type Handle } from './database.js';
import { Args, Failure, flag, invalid, itemsOf, list, number } from './form.js';
import { SURROUNDINGS } from './surroundings.js';

/** What an instance remembers: a field, and what happened to it, oldest first. */
export interface State {
  memory: Uint8Array;
  seen: Uint8Array[];
}

/** Gives the values of a result. */
export type Command = (script: Script, args: Args) => Bytes[];

/** Runs a script; the list of its results. */
export function runScript(steps: Uint8Array, state: State, call: Call): Reply {
  const script = new Script(state, call);
  try {
    return script.run(steps);
  } finally {
    script.end();
  }
}

/** A script in progress. */
export class Script {
  /** The seq of its last write. */
  lastSeq = 0n;
  /** How the reply goes out. */
  mediaType: string | undefined;
  isApplied = false;
  #handles = new Map<bigint, Handle>();

  constructor(
    readonly state: State,
    readonly call: Call,
  ) {}

  run(steps: Uint8Array): Reply {
    let reply = Reply.bytes(list(itemsOf(steps).map((step) => this.#step(step))));
    if (this.mediaType !== undefined) reply = reply.contentType(this.mediaType);
    return this.isApplied ? reply.whenApplied() : reply;
  }

  #step(step: Uint8Array): Uint8Array {
    const [command, ...args] = itemsOf(step);
    const text = command && textOrUndefined(command);
    if (text === undefined) throw invalid();
    const raises = text.startsWith('!');
    const name = raises ? text.slice(1) : text;
    try {
      const run = DATABASE.get(name) ?? SURROUNDINGS.get(name);
      if (run === undefined) throw new QuarryError('unknown-command', `there is no command \`${name}\``);
      return list(['ok', ...run(this, new Args(args))]);
    } catch (error) {
      if (!(error instanceof QuarryError) || error instanceof Failure || raises) throw error;
      return list(['err', error.code, error.message, flag(error.retryable)]);
    }
  }

  /** Gives back what was opened. */
  end(): void {
    for (const handle of this.#handles.values()) handle.close();
  }

  /** Keeps what was opened under its number. */
  open(at: bigint, handle: Handle): void {
    this.#handles.get(at)?.close();
    this.#handles.set(at, handle);
  }

  /** Gives back what was opened under a number. */
  close(at: bigint): void {
    const handle = this.#handles.get(at);
    if (handle === undefined) throw noHandle(at);
    handle.close();
    this.#handles.delete(at);
  }

  /** What is open under a number. */
  handle(at: bigint): Handle | undefined {
    return this.#handles.get(at);
  }

  /** Notes the seq of a write. */
  wrote(seq: bigint): Bytes[] {
    this.lastSeq = seq;
    return [number(seq)];
  }
}

/** A handle that is not there, or of another kind. */
export function noHandle(at: bigint): QuarryError {
  return new QuarryError('no-handle', `${at} is no handle that takes this`);
}
