import { billingErrors } from './errors.js';
import { idIn, type Json, nameIn, objectIn } from './snapshot.js';

/** What counts as an answer of the payment provider's, and how long one is waited for. */

/** One of the SDK's HTTP client. */
interface Response {
  getStatusCode(): number;
  toJSON(): Promise<unknown>;
}

/**
 * The SDK takes any JSON without an `error` for success, whatever its status, and JSON that is no object ends the
 * process. Something between us and the provider may send either.
 */
export function strict<T extends Response>(response: T): T {
  const read = response.toJSON.bind(response);
  response.toJSON = async () => {
    const json = await read();
    const status = response.getStatusCode();
    const isObject = typeof json === 'object' && json !== null && !Array.isArray(json);
    const isSuccess = status >= 200 && status < 300;
    if (!isObject || !(isSuccess || objectIn(json)['error'])) throw new Error(`No answer, but ${status}.`);
    return json;
  };
  return response;
}

export const malformed = (what: string) => billingErrors.PAYMENT_PROVIDER_ERROR({ cause: new Error(what) });

/** What was made says who it is and where people find it. */
export function addressed({ id, url }: { id: unknown; url?: unknown }): { id: string; url: string } {
  const name = nameIn(id);
  if (name === undefined || typeof url !== 'string' || url === '')
    throw malformed('A page without an address.');
  return { id: name, url };
}

/** The object that was asked for. */
export function named<T>(object: T, id: string): T {
  if (idIn(object) !== id) throw malformed('Another object than was asked for.');
  return object;
}

/** A subscription says what it is; what does not is none. */
export function whole(subscription: unknown): Json {
  const object = objectIn(subscription);
  if (idIn(object) && nameIn(object['status'])) return object;
  throw malformed('A subscription without an id or a status.');
}

export interface ListPage<T> {
  data: T[];
  has_more: boolean;
}

export function listed<P extends ListPage<unknown>>(page: P): P {
  if (!Array.isArray(page.data)) throw malformed('A list without data.');
  return page;
}

export async function allPages<T extends { id: string }, P extends ListPage<T>>(
  list: (after: { starting_after?: string }) => Promise<P & ListPage<T>>,
): Promise<P[]> {
  const pages: P[] = [];
  for (let after = {}; ; ) {
    const page = listed(await list(after));
    pages.push(page);
    const last = page.data.at(-1);
    if (!page.has_more || !last) return pages;
    after = { starting_after: last.id };
  }
}

/** Nothing that the provider tells of so long before it answers is missing from the answer. Milliseconds. */
const SETTLED = 10_000;

/** The provider's clock when it answered, less what may not have settled by then; 0 where it did not say. */
export function asOf(answer: unknown): number {
  const { headers } = objectIn(objectIn(answer)['lastResponse']);
  const date = Date.parse(String(objectIn(headers)['date']));
  return Number.isNaN(date) ? 0 : Math.max(0, date - SETTLED);
}

/** What takes longer is given up; the SDK's own time-outs do not bound an answer as a whole. */
export async function within<T>(milliseconds: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const end = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('no answer in time')), milliseconds).unref();
  });
  return Promise.race([work, end]).finally(() => clearTimeout(timer));
}
