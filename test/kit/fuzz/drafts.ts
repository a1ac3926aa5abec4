import type { Dice } from '../stripe-simulator.js';
import type { Route } from './engine.js';
import { type FuzzRequest, type Pair, pairsOf } from './request.js';

/** Requests as the schemas of the routes describe them, with values that a client knows by the names of their fields. */

/** The value of a field, a parameter of the path (`:id`) or of the query. `undefined`: none is known. */
export type FieldOf = (name: string, url: string) => unknown;

/** How often a field that may be left out is sent. */
const OPTIONAL = 0.7;

export function schemaDraft(
  { method, url, schema }: Route,
  { fieldOf, headers, dice }: { fieldOf: FieldOf; headers: Pair[]; dice: Dice },
): FuzzRequest {
  const valuesOf = (part: unknown): Record<string, unknown> => {
    const { properties = {}, required = [] } = (part ?? {}) as { properties?: object; required?: string[] };
    const names = Object.keys(properties).filter((name) => required.includes(name) || dice.happens(OPTIONAL));
    const known = names.map((name) => [name, fieldOf(name, url)] as const);
    return Object.fromEntries(known.filter(([, value]) => value !== undefined));
  };
  const asText = (values: Record<string, unknown>) =>
    pairsOf(Object.fromEntries(Object.entries(values).map(([name, value]) => [name, textOf(value)])));
  const request: FuzzRequest = {
    method,
    path: url.replace(/:\w+/g, (name) => String(fieldOf(name, url) ?? 'x')),
    query: asText(valuesOf(schema?.querystring)),
    headers,
  };
  if (schema?.body === undefined) return request;
  const values = valuesOf(schema.body);
  // Pages take forms.
  const isForm = headers.some(([name, value]) => name === 'accept' && value === 'text/html');
  return { ...request, body: isForm ? { form: asText(values) } : { json: values } };
}

const textOf = (value: unknown): string =>
  typeof value === 'object' ? JSON.stringify(value) : String(value);
