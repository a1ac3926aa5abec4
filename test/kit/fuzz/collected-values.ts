import type { Dice } from '../stripe-simulator.js';
import type { FuzzAnswer } from './connection.js';

/** Values that a client has collected from answers; of each kind the latest. */
export class CollectedValues {
  readonly #kinds: Record<string, RegExp | null>;
  readonly #found = new Map<string, string[]>();
  readonly #cookies = new Map<string, string>();

  /** @param kinds the pattern of each kind; a group marks the relevant part. `null`: never found in answers */
  constructor(kinds: Record<string, RegExp | null>) {
    this.#kinds = kinds;
  }

  /** One of the latest values, or a placeholder. */
  one(kind: string, dice: Dice): string {
    const found = this.#found.get(kind) ?? [];
    return found.length === 0 ? 'none' : dice.one(found);
  }

  /** The latest value, or a placeholder. */
  latest(kind: string): string {
    return this.#found.get(kind)?.at(-1) ?? 'none';
  }

  add(kind: string, value: string): void {
    const found = this.#found.get(kind) ?? [];
    this.#found.set(kind, [...found.filter((other) => other !== value).slice(-MOST + 1), value]);
  }

  /** One of the latest values of any kind. */
  any(dice: Dice): string {
    return this.one(dice.one(Object.keys(this.#kinds)), dice);
  }

  get cookie(): string {
    return [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
  }

  /** Collects all values of a known kind from an answer, including cookies. */
  learn({ head, body }: FuzzAnswer): void {
    const text = `${decode(head)}\n${body}`;
    for (const [kind, pattern] of Object.entries(this.#kinds)) {
      for (const [whole, part] of pattern ? text.matchAll(pattern) : []) this.add(kind, part ?? whole);
    }
    for (const [, name = '', value = ''] of head.matchAll(/^set-cookie: ([\w-]+)=([^;\r]*)/gim)) {
      if (value === '') this.#cookies.delete(name);
      else this.#cookies.set(name, value);
    }
  }
}

const MOST = 6;

const decode = (head: string): string => head.replace(/%3A/gi, ':').replace(/%2F/gi, '/');
