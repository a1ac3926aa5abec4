import type { Dice } from '../stripe-simulator.js';
import type { FuzzRequest, Pair } from './request.js';

/** Ways to mutate a valid request. */

/** Must appear in answers only as text: an unregistered address, and markup that must be escaped. */
export const EVIL = 'evil.test';
export const MARKUP = '<script>fuzz</script>';

const GARBAGE = [
  ...['', ' ', '\0', '%00', '%', '%zz', '%ff%fe', '%ed%a0%80', 'é😀', "'", '"', '<', '{{', '${', '../', '\\'],
  ...[
    '\t',
    '\n',
    '\r\nset-cookie: fuzz=1\r\n',
    '&',
    '=',
    '&=',
    '#',
    ';',
    ':',
    '@',
    '\u202e',
    '\ud800',
    '\ufeff',
  ],
  ...['__proto__', 'constructor', 'toString', 'hasOwnProperty', '[$ne]', '{"$gt":""}', 'null', 'undefined'],
  ...[
    '-1',
    '0',
    '1e400',
    '[]',
    '{}',
    'true',
    '9007199254740993',
    '2040-01-01',
    'x'.repeat(300),
    'x'.repeat(5000),
  ],
  ...['cid_', 'ac_', 'at_', 'rt_', 'agp_', 'u_', 'sid_', 'none', 'openid', 'a@b.c', 'e30.e30.', '*'],
  ...[
    `https://${EVIL}/cb`,
    `//${EVIL}`,
    `javascript:alert(1)//${EVIL}`,
    MARKUP,
    `"${MARKUP}'`,
    'İ',
    'ß',
    'ﬀ',
  ],
];

/** Values around every limit. */
const LENGTHS = [1, 2, 3, 128, 129, 200, 201, 254, 255, 512, 513, 1024, 1025, 2048, 2049, 4096, 4097, 8193];

const ODD_JSON: readonly unknown[] = [
  ...[null, true, 0, -1, 1.5, 1e300, '', [], {}, [[]], ['x'], { $ne: '' }, { $gt: '' }, { toString: 1 }],
  ...[
    { length: 1e9 },
    '\ud800',
    '\0',
    JSON.parse('{"__proto__":{"x":1}}'),
    { constructor: { prototype: {} } },
  ],
];

const RAW_BODIES = [
  ...[
    '',
    ' ',
    '{',
    '[',
    '"',
    'null',
    '[]',
    '1e400',
    '{"a":1e400}',
    '{"a":1,"a":2}',
    '\ufeff{}',
    '{"a":"\\ud800"}',
  ],
  ...[
    '{"__proto__":{"x":1}}',
    '{"constructor":{"prototype":{"x":1}}}',
    '['.repeat(5000),
    '{"a":'.repeat(2000),
  ],
  ...[
    '&',
    '=',
    '&&&===',
    'a[b][c]=1',
    '%',
    'a=%zz',
    'a=1&'.repeat(3000),
    'x'.repeat(17_000),
    'x'.repeat(70_000),
  ],
];

const TYPES = [
  ...['', 'x', 'text/plain', 'application/json', 'application/json; charset=utf-16', 'APPLICATION/JSON'],
  ...[
    'application/x-www-form-urlencoded',
    'application/x-www-form-urlencoded;charset=latin1',
    'multipart/form-data',
  ],
  ...[
    'application/json\tx',
    ' application/json',
    'application/json garbage',
    'application/jsonx',
    'text/html',
  ],
];

const ACCEPTS = [
  'text/html',
  'application/json',
  '*/*',
  'text/html;q=0',
  '',
  'image/png',
  ',;,',
  'x'.repeat(4000),
];

const STRANGE_HEADERS: readonly Pair[] = [
  ...(['null', 'https://evil.test', '', 'http://127.0.0.1'] as const).map((value): Pair => ['origin', value]),
  ...(['cross-site', 'same-origin', 'none', 'x'] as const).map((value): Pair => ['sec-fetch-site', value]),
  ...(['navigate', 'no-cors', 'cors'] as const).map((value): Pair => ['sec-fetch-mode', value]),
  ...(['gzip', 'br', 'identity', ''] as const).map((value): Pair => ['content-encoding', value]),
  ...(['a', '::ffff:1.2.3.4', '1.2.3.4, '.repeat(200)] as const).map(
    (value): Pair => ['x-forwarded-for', value],
  ),
  ...[EVIL, '127.0.0.1:80@evil.test', '', 'a b'].map((value): Pair => ['host', value]),
  ['x-forwarded-host', EVIL],
  ['forwarded', `host=${EVIL};proto=https`],
  ['x-original-url', '/admin'],
  ['x-http-method-override', 'DELETE'],
  ['access-control-request-method', 'POST'],
  ['range', 'bytes=0-1'],
  ['if-none-match', '*'],
  ['expect', '100-continue'],
  ['__proto__', '1'],
  ['x-request-id', `${MARKUP}\x1b[31m`],
];

const METHODS = ['GET', 'POST', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'QUERY'];

const spliced = (text: string, dice: Dice): string => {
  const [from, to] = [dice.whole(text.length + 1), dice.whole(text.length + 1)].sort(
    (a, b) => a - b,
  ) as Pair2;
  return text.slice(0, from) + dice.one(GARBAGE) + text.slice(dice.happens(0.5) ? from : to);
};
type Pair2 = [number, number];

/** A secret or an identifier from other requests and answers. */
export type Known = () => string;

/** Another text that replaces this one. */
function mutateText(text: string, known: Known, dice: Dice): string {
  const kind = dice.whole(6);
  if (kind === 0) return dice.one(GARBAGE);
  if (kind === 1) return 'a'.repeat(dice.one(LENGTHS));
  if (kind === 2) return known();
  if (kind === 3) return dice.happens(0.5) ? text.toUpperCase() : text.slice(0, -1);
  return spliced(text, dice);
}

function mutatePairs(pairs: Pair[], known: Known, dice: Dice): void {
  const index = dice.whole(pairs.length);
  const [name, value] = pairs[index] ?? ['x', 'x'];
  const kind = dice.whole(6);
  if (kind === 0) pairs.splice(index, 1);
  else if (kind === 1) pairs.push([name, dice.happens(0.5) ? value : mutateText(value, known, dice)]);
  else if (kind === 2) pairs[index] = [spliced(name, dice), value];
  else if (kind === 3) pairs.push([dice.one(GARBAGE), dice.one(GARBAGE)]);
  else pairs[index] = [name, mutateText(value, known, dice)];
}

function mutateObject(object: Record<string, unknown>, known: Known, dice: Dice): void {
  const name = dice.one([...Object.keys(object), 'x']);
  const value = object[name];
  const kind = dice.whole(6);
  if (kind === 0) delete object[name];
  else if (kind === 1) object[name] = [value];
  else if (kind === 2) object[name] = dice.one(ODD_JSON);
  else if (kind === 3)
    object[dice.one(['role', 'kind', 'sub', 'trusted', '$where', 'constructor', 'id'])] = value;
  else object[name] = mutateText(textOf(value), known, dice);
}

type Mutation = (request: FuzzRequest, known: Known, dice: Dice) => void;

const mutateBody: Mutation = (request, known, dice) => {
  const { body } = request;
  if (!body || 'raw' in body || dice.happens(0.1)) request.body = { raw: dice.one(RAW_BODIES) };
  else if ('form' in body) mutatePairs(body.form, known, dice);
  else if (typeof body.json === 'object' && body.json !== null && !Array.isArray(body.json)) {
    mutateObject(body.json as Record<string, unknown>, known, dice);
  } else request.body = { json: dice.one(ODD_JSON) };
};

const mutateHeader =
  (name: string, values: readonly string[]): Mutation =>
  ({ headers }, _known, dice) => {
    const index = headers.findIndex(([other]) => other === name);
    if (index >= 0 && dice.happens(0.8)) headers.splice(index, 1);
    headers.push([name, dice.one(values)]);
  };

const mutateCredentials: Mutation = ({ headers }, known, dice) => {
  const index = headers.findIndex(([name]) => name === 'authorization' || name === 'cookie');
  const [name, value] = headers[index] ?? ['authorization', 'Basic eDp5'];
  const kind = dice.whole(7);
  if (kind === 0 && index >= 0) headers.splice(index, 1);
  else if (kind === 1) headers.push([name, value]);
  else if (kind === 2)
    headers.push(['authorization', `${dice.one(['Bearer', 'basic', 'Digest', ''])} ${known()}`]);
  else if (kind === 3)
    headers.push([
      'authorization',
      `Basic ${Buffer.from(dice.one(['\0:\xff', ':', 'a:', ':b', 'a', 'ä:ö', 'a:b:c']), 'latin1').toString('base64')}`,
    ]);
  else if (kind === 4)
    headers.push([
      'cookie',
      dice.one(['=', ';;;', '__Host-idp=', 'a=b; a=c', `__Host-idp-session=${'x'.repeat(75)}`]),
    ]);
  else if (index >= 0) headers[index] = [name, kind === 5 ? value.replace(' ', '   ') : spliced(value, dice)];
};

const mutatePath: Mutation = (request, known, dice) => {
  const { path } = request;
  request.path = dice.one([
    `/${path}`,
    `${path}/`,
    path.toUpperCase(),
    `${path}%2f`,
    `${path};x`,
    `${path}/.`,
    `/x/..${path}`,
    path.replace(/[a-z]/, (each) => `%${each.charCodeAt(0).toString(16)}`),
    spliced(path, dice),
    path.replace(/[^/]*$/, known),
  ]);
};

/** Repeated entries are chosen more often. */
const MUTATIONS: readonly Mutation[] = [
  ...Array<Mutation>(6).fill((request, known, dice) =>
    request.body ? mutateBody(request, known, dice) : mutatePairs(request.query, known, dice),
  ),
  (request, known, dice) => mutatePairs(request.query, known, dice),
  mutateBody,
  mutateCredentials,
  mutateCredentials,
  mutatePath,
  mutateHeader('content-type', TYPES),
  mutateHeader('accept', ACCEPTS),
  ({ headers }, _known, dice) => void headers.push(dice.one(STRANGE_HEADERS)),
  (request, _known, dice) => {
    request.method = dice.one(METHODS);
  },
  (request) => {
    const { body } = request;
    if (!body || 'raw' in body) return;
    request.body =
      'form' in body
        ? { json: Object.fromEntries(body.form) }
        : { form: Object.entries(body.json ?? {}).map(([name, value]) => [name, textOf(value)]) };
  },
];

const textOf = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value ?? ''));

/** Mutates a request in one to three ways. */
export function mutate(request: FuzzRequest, known: Known, dice: Dice): void {
  for (let times = 1 + dice.whole(3); times > 0; times--) dice.one(MUTATIONS)(request, known, dice);
}

/** Mutates the encoded bytes, which may no longer be valid HTTP. */
export function mutateBytes(bytes: Buffer, dice: Dice): Buffer {
  const mutated = Buffer.from(bytes);
  const at = dice.whole(mutated.length);
  const insert = dice.one([
    '\r\n',
    '\n',
    '\0',
    ' ',
    'GET / HTTP/1.1\r\n\r\n',
    'transfer-encoding: chunked\r\n',
    '\xff',
    ':',
  ]);
  const kind = dice.whole(4);
  if (kind === 0) return mutated.subarray(0, at);
  if (kind === 1) mutated[at] = dice.whole(256);
  else if (kind === 2)
    return Buffer.concat([mutated.subarray(0, at), Buffer.from(insert, 'latin1'), mutated.subarray(at)]);
  else return Buffer.concat([mutated, mutated.subarray(at)]);
  return mutated;
}
