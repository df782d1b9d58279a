// The module's options.

/** How often jobs are tried, and for how long they are remembered. */
export interface Settings {
  /** Attempts of a job before it is dead. */
  max_attempts: number;
  /** The pause after the first attempt that failed; each further one is twice as long. */
  backoff_ms: number;
  /** The longest pause. */
  max_backoff_ms: number;
  /** How long a job that is done or cancelled is kept, and with it its id. */
  keep_ms: number;
}

const DEFAULTS: Settings = { max_attempts: 5, backoff_ms: 1_000, max_backoff_ms: 60_000, keep_ms: 24 * 60 * 60 * 1_000 };
const MOST: Settings = { max_attempts: 100, backoff_ms: 3_600_000, max_backoff_ms: 86_400_000, keep_ms: 30 * 86_400_000 };

/** The settings that options make; throws what is wrong with them. */
export function settingsOf(options: Record<string, unknown>): Settings {
  const settings = { ...DEFAULTS };
  for (const [name, value] of Object.entries(options)) {
    if (!isSetting(name)) throw new Error(`unknown option \`${name}\`, expected one of ${Object.keys(DEFAULTS).join(', ')}`);
    if (typeof value !== 'number' || !Number.isInteger(value) || value < 1 || value > MOST[name]) {
      throw new Error(`\`${name}\` is a whole number from 1 to ${MOST[name]}, not ${JSON.stringify(value)}`);
    }
    settings[name] = value;
  }
  return settings;
}

/** The pause after so many attempts. */
export function backoffMs(settings: Settings, attempts: number): number {
  return Math.min(settings.backoff_ms * 2 ** (attempts - 1), settings.max_backoff_ms);
}

function isSetting(name: string): name is keyof Settings {
  return Object.hasOwn(DEFAULTS, name);
}
