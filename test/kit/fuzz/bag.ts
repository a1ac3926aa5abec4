import type { Dice } from '../stripe-world.js';
import type { FuzzAnswer } from './connection.js';

/** What a client has found in answers, by kind; of each kind the latest. */
export class Bag {
  readonly #kinds: Record<string, RegExp | null>;
  readonly #found = new Map<string, string[]>();
  readonly #cookies = new Map<string, string>();

  /** @param kinds what a thing of this kind looks like; a group marks what of it counts. `null`: it is in no answer */
  constructor(kinds: Record<string, RegExp | null>) {
    this.#kinds = kinds;
  }

  /** One of the latest, or what looks like nothing. */
  one(kind: string, dice: Dice): string {
    const found = this.#found.get(kind) ?? [];
    return found.length === 0 ? 'none' : dice.one(found);
  }

  /** The latest, or what looks like nothing. */
  latest(kind: string): string {
    return this.#found.get(kind)?.at(-1) ?? 'none';
  }

  add(kind: string, value: string): void {
    const found = this.#found.get(kind) ?? [];
    if (found.includes(value)) return;
    this.#found.set(kind, [...found.slice(-MOST + 1), value]);
  }

  /** One of the latest of any kind. */
  any(dice: Dice): string {
    return this.one(dice.one(Object.keys(this.#kinds)), dice);
  }

  get cookie(): string {
    return [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
  }

  /** Everything of a known kind in an answer, its cookies included. */
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
