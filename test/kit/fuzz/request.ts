/** A request in parts, so that each can be mutated, and its encoding. */

export type Pair = [name: string, value: string];

/** Fields of a form or a query. New pairs each time, because mutations change a request in place. */
export const pairsOf = (fields: Record<string, string>): Pair[] => Object.entries(fields);

export type Body = { form: Pair[] } | { json: unknown } | { raw: string };

export interface FuzzRequest {
  method: string;
  /** Without the query. */
  path: string;
  query: Pair[];
  headers: Pair[];
  body?: Body;
}

/** The encoded request, and whether its answer has a body. */
export interface Sent {
  bytes: Buffer;
  isHead: boolean;
}

/** Encodes a request so that every server reads exactly one request, whatever its content. */
export function bytesOf(request: FuzzRequest): Sent {
  const text = bodyText(request.body);
  const payload = Buffer.from(text ?? '');
  const lines = [
    ...(request.headers.some(([name]) => /^host$/i.test(name)) ? [] : ['host: 127.0.0.1']),
    ...request.headers.map(([name, value]) => `${headerName(name)}: ${headerValue(value)}`),
    ...(request.body && !request.headers.some(([name]) => /^content-type$/i.test(name))
      ? [`content-type: ${typeOf(request.body)}`]
      : []),
    ...(text === undefined ? [] : [`content-length: ${payload.length}`]),
  ];
  const head = `${request.method} ${targetOf(request)} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`;
  return { bytes: Buffer.concat([Buffer.from(head, 'latin1'), payload]), isHead: request.method === 'HEAD' };
}

export function targetOf({ path, query }: Pick<FuzzRequest, 'path' | 'query'>): string {
  const search = query.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&');
  return printable(`/${path.replace(/^\//, '')}`) + (search ? `?${search}` : '');
}

function bodyText(body: Body | undefined): string | undefined {
  if (!body) return undefined;
  if ('raw' in body) return body.raw;
  if ('json' in body) return JSON.stringify(body.json) ?? '';
  return body.form.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&');
}

const typeOf = (body: Body): string =>
  'form' in body ? 'application/x-www-form-urlencoded' : 'application/json';

/** Keeps percent signs, so that invalid encodings are sent, too. */
function encode(text: string): string {
  return printable(text.replace(/[&=+#\s]/g, (each) => encodeURIComponent(each)));
}

const printable = (text: string): string =>
  text.replace(/[^\x21-\x7e]/gu, (each) => (each.isWellFormed() ? encodeURIComponent(each) : '%ed%a0%80'));

const headerName = (name: string): string => name.replace(/[^\w-]/g, '') || 'x';

/** Replaces what an HTTP parser would reject: the test is about our answer, not the parser's. */
const headerValue = (value: string): string => value.replace(/[\0-\x08\x0a-\x1f\x7f]|[^\0-\xff]/gu, '?');
