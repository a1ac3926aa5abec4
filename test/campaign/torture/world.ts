/** What the clients of a campaign share: the programs, the history, and when to pause. */
import { Agent, request as httpRequest } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseJson } from '../../kit/app.js';
import type { MailSink } from '../../kit/mail.js';
import type { Dice } from '../../kit/stripe-simulator.js';
import type { History, Operation } from './history.js';
import type { Fleet, Product } from './processes.js';

export interface Request {
  method: string;
  path: string;
  headers?: Record<string, string>;
  body?: string;
}

export interface Reply {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  // biome-ignore lint/suspicious/noExplicitAny: clients read what they expect
  body: any;
}

/** What is recorded about a request besides its outcome. */
export type About = Pick<Operation, 'rule' | 'key' | 'kind' | 'what'> &
  Partial<Pick<Operation, 'value' | 'expected' | 'since'>> & {
    /** What an answer shows, for reads. */
    read?: (reply: Reply) => string | undefined;
    /** The number of the process; by default a random one. */
    process?: number;
  };

/** A client of a campaign, once it is prepared. */
export interface Client {
  /** Resolves when the campaign ends. */
  running: Promise<void>;
}

/** A client gives up on a request after that time. */
const CLIENT_TIMEOUT_MS = 8000;

/** Clients pause that long after a request without an answer, and between two turns. */
const RETRY_MS = 50;
const TURN_MS = 10;

/** How long after an event a request of before can still arrive at a process. */
const CALM_MS = 2500;

export class World {
  readonly history: History;
  readonly dice: Dice;
  readonly mails: MailSink;
  readonly fleets: Record<Product, Fleet>;
  /** Counts the times at which all clocks were set. */
  clockJumps = 0;
  isOver = false;
  readonly #agent = new Agent({ keepAlive: true });
  #calmAt = 0;
  #isDisturbed = false;
  #lanes = 0;
  #parked = 0;
  #isPaused = false;

  constructor(parts: Pick<World, 'history' | 'dice' | 'mails' | 'fleets'>) {
    this.history = parts.history;
    this.dice = parts.dice;
    this.mails = parts.mails;
    this.fleets = parts.fleets;
  }

  /** Runs a client until the campaign ends. Each iteration takes a bounded time. */
  async lane(turn: () => Promise<void>): Promise<void> {
    this.#lanes++;
    while (!this.isOver) {
      await turn();
      await sleep(TURN_MS);
      if (!this.#isPaused) continue;
      this.#parked++;
      while (this.#isPaused) await sleep(TURN_MS);
      this.#parked--;
    }
    this.#lanes--;
  }

  /** Resolves when no client has a request in flight; the result lets them continue. */
  async pause(): Promise<() => void> {
    this.#isPaused = true;
    while (this.#parked < this.#lanes) await sleep(TURN_MS);
    return () => {
      this.#isPaused = false;
    };
  }

  /** An event begins or ends. */
  set isDisturbed(isDisturbed: boolean) {
    this.#isDisturbed = isDisturbed;
    this.#calmAt = this.history.now() + CALM_MS;
  }

  /** Resolves when no request of before can be under way any more, such as one to a frozen process. */
  async calm(): Promise<void> {
    while (!this.isOver && (this.#isDisturbed || this.history.now() < this.#calmAt)) await sleep(TURN_MS);
  }

  /** Sends one request and records it. Null without an answer. */
  async ask(product: Product, request: Request, about: About): Promise<Reply | null> {
    const fleet = this.fleets[product];
    const { read, process: number = this.dice.whole(fleet.urls.length), ...recorded } = about;
    const index = number % fleet.urls.length;
    const start = this.history.now();
    const name = product === 'idp' ? 'idp' : 'saas';
    const add = (outcome: Operation['outcome'], detail: string, value: string | undefined) =>
      this.history.add({
        ...recorded,
        target: `${name}#${index}`,
        start,
        end: this.history.now(),
        outcome,
        detail,
        ...(value !== undefined && { value }),
      });
    try {
      const reply = await this.#send(fleet.urls[index] as string, request);
      const outcome = reply.status < 400 ? 'ok' : reply.status < 500 ? 'refused' : 'unknown';
      const shown = outcome === 'ok' && read ? read(reply) : about.value;
      add(outcome, `${reply.status} ${codeOf(reply.body)}`.trim(), shown);
      return reply;
    } catch (error) {
      add('unknown', (error as NodeJS.ErrnoException).code ?? (error as Error).message, about.value);
      await sleep(RETRY_MS);
      return null;
    }
  }

  /** Repeats a request until its outcome is known. `null` if the campaign ends first. */
  async insist(product: Product, request: () => Request, about: () => About): Promise<Reply | null> {
    for (let tries = 0; ; tries++) {
      const reply = await this.ask(product, request(), about());
      if (reply && reply.status < 500) return reply;
      if (this.isGivenUp(tries)) return null;
      await sleep(RETRY_MS);
    }
  }

  /** Whether a client stops repeating a request: the campaign has ended and the programs have had time to recover. */
  isGivenUp(tries: number): boolean {
    return this.isOver && tries > 20;
  }

  close(): void {
    this.#agent.destroy();
  }

  #send(url: string, { method, path, headers = {}, body }: Request): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const signal = AbortSignal.timeout(CLIENT_TIMEOUT_MS);
      const sent = httpRequest(url + path, { method, headers, agent: this.#agent, signal }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('close', () => {
          if (!response.complete) return reject(new Error('cut'));
          const text = Buffer.concat(chunks).toString();
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: parseJson(text) });
        });
      });
      sent.on('error', reject);
      sent.end(body);
    });
  }
}

// biome-ignore lint/suspicious/noExplicitAny: any body
function codeOf(body: any): string {
  return body?.error?.code ?? (typeof body?.error === 'string' ? body.error : '');
}

/** A request with a JSON body. */
export const json = (
  method: string,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Request => ({
  method,
  path,
  headers: { 'content-type': 'application/json', ...headers },
  body: JSON.stringify(body),
});

/** A request with a form. */
export const form = (path: string, body: string): Request => ({
  method: 'POST',
  path,
  headers: { 'content-type': 'application/x-www-form-urlencoded' },
  body,
});
