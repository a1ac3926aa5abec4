/** What the rows of the timing benchmark share: requests that an attacker must not distinguish by time. */
import type { Lab } from './lab.js';
import { ask } from './load.js';

/** Each request is generated anew; `expected` is the common status of all classes, or a list of allowed ones. */
export interface TimingRow {
  name: string;
  url: string;
  expected: number | readonly number[];
  classes: Record<string, () => string>;
}

/** The rows of a product by name; each starts its own server. */
export type TimingRows = Record<string, (lab: Lab) => Promise<TimingRow[]>>;

export const JSON_BODY = { 'content-type': 'application/json' };
export const PASSWORD = 'a sentence is fine';
export const WRONG = 'a sentence is wrong';

/** Accounts of each kind, used in turn, so that the result does not depend on a single document. */
export const ACCOUNTS = 16;

export const addressesOf = (kind: string): string[] =>
  Array.from({ length: ACCOUNTS }, (_, number) => `${kind}-${number}@example.com`);

export function inTurn(requests: string[]): () => string {
  let next = 0;
  return () => requests[next++ % requests.length] as string;
}

export async function times<T>(count: number, call: (number: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let number = 0; number < count; number++) results.push(await call(number));
  return results;
}

export async function post(url: string, body: object, expected = 201, token?: string): Promise<Answer> {
  const headers = { ...JSON_BODY, ...(token && { authorization: `Bearer ${token}` }) };
  const answer = await ask(url, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await answer.text();
  if (answer.status !== expected) throw new Error(`${url} answered ${answer.status}: ${text}`);
  return (text === '' ? {} : JSON.parse(text)) as Answer;
}

/** What the rows read of an answer. */
interface Answer {
  data: {
    user: { id: string };
    accessToken: string;
    secret: string;
    recoveryCodes: string[];
    ceremony: string;
    options: object;
    loginToken: string;
  };
  error: { challenge: string };
}
