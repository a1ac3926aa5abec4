import { createHash } from 'node:crypto';
import { request } from 'node:http';
import t from 'tap';
import { basic } from '../kit/app.js';
import { ADMIN_TOKEN, authorizePath, idpApp, redemption } from '../kit/idp.js';

/** Nonsense through real sockets, the same in each run. What the parser of Node lets through is ours to answer. */

const REQUESTS = 2000;
const AT_ONCE = 20;

/** The choices of one request follow from its number. */
function chooser(seed: number) {
  let count = 0;
  const next = (below: number): number =>
    createHash('sha256').update(`${seed}:${count++}`).digest().readUInt32BE() % below;
  return { next, pick: <T>(items: readonly T[]): T => items[next(items.length)] as T };
}

const GARBAGE = [
  ...['', ' ', '\0', '%00', '%', '%zz', '%ff%fe', '%ed%a0%80', 'é😀', "'", '"', '<', '{{', '${', '../', '\\'],
  ...['\t', '\n', '&', '=', '&=', '#', ';', ':', '@', '\u202e', '\ud800', 'x'.repeat(300), 'x'.repeat(5000)],
  ...[
    '__proto__',
    'constructor',
    'toString',
    '[$ne]',
    '{"$gt":""}',
    'null',
    'undefined',
    '-1',
    '1e400',
    '[]',
  ],
  ...['cid_', 'ac_', 'at_', 'agp_'],
];

t.test('[S7] 2,000 requests of nonsense end in no failure of ours', async (t) => {
  const idp = await idpApp(t);
  const [client, agent, human] = [await idp.createClient(), await idp.mintAgent(), await idp.makeHuman()];
  const code = await idp.codeFor(client, agent);
  const paths = [
    ...['/authorize', '/authorize/login', '/token', '/userinfo', '/v1/accounts', '/v1/agents', '/v1/clients'],
    ...['/.well-known/openid-configuration', '/jwks', '/health', '/ready', '/'],
  ];
  const forms = [
    authorizePath(client).split('?')[1] as string,
    redemption(client, code),
    new URLSearchParams({ interaction: 'x', ...human }).toString(),
    'access_token=at_x',
  ];
  const objects = [
    { handle: 'new@example.test', password: 'long enough', kind: 'human', name: 'x' },
    {
      client_name: 'x',
      redirect_uris: ['https://app.example.test/cb'],
      public: true,
      principal_kinds: ['agent'],
    },
    Object.fromEntries(new URLSearchParams(redemption(client, code))),
  ];
  const credentials = [
    ...[
      `Bearer ${ADMIN_TOKEN}`,
      basic(agent.handle, agent.password),
      basic(human.handle, 'wrong'),
      basic(client.id, client.secret),
    ],
    ...[
      'Basic',
      'Basic !',
      'Bearer',
      'Bearer x',
      'x',
      '',
      `Basic ${Buffer.from('\0:\xff', 'latin1').toString('base64')}`,
    ],
  ];

  const mutate = (text: string, { next, pick }: ReturnType<typeof chooser>): string => {
    let result = text;
    for (let times = next(4); times > 0; times--) {
      const [from, to] = [next(result.length + 1), next(result.length + 1)].sort((a, b) => a - b) as [
        number,
        number,
      ];
      result = result.slice(0, from) + pick(GARBAGE) + result.slice(next(2) ? from : to);
    }
    return result;
  };
  const make = (seed: number) => {
    const choose = chooser(seed);
    const { next, pick } = choose;
    const query = next(2) ? `?${mutate(pick(forms), choose)}` : '';
    const path = (next(8) ? pick(paths) : mutate(pick(paths), choose)) + query;
    const isForm = next(2) === 1;
    const text = isForm ? pick(forms) : JSON.stringify(pick(objects));
    const headers: Record<string, string> = {
      'content-type': next(8)
        ? isForm
          ? 'application/x-www-form-urlencoded'
          : 'application/json'
        : pick(['', 'text/plain', 'x']),
      ...(next(3) && { authorization: pick(credentials) }),
      ...(!next(6) && { accept: 'text/html' }),
      ...(!next(10) && { cookie: pick(['__Host-idp=x', '=', ';;;', `__Host-idp=${'x'.repeat(43)}`]) }),
      ...(!next(20) && { 'content-encoding': pick(['gzip', 'identity', '']) }),
      ...(!next(10) && { origin: pick(['null', 'https://evil.test', '']) }),
    };
    // What cannot stand in a request line is refused by Node's parser before anybody asks us.
    const target = path
      .replace(/^\/?/, '/')
      .replace(/[^\x21-\x7e]/g, (c) => (c.isWellFormed() ? encodeURIComponent(c) : '%ed%a0%80'));
    return {
      method: pick(['GET', 'GET', 'POST', 'POST', 'POST', 'POST', 'HEAD', 'PUT']),
      target,
      headers,
      body: mutate(text, choose),
    };
  };

  const origin = await idp.listen();
  const send = (seed: number): Promise<number> => {
    const { method, target, headers, body } = make(seed);
    return new Promise((resolve, reject) => {
      const sent = request(origin, { method, path: target, headers, agent: false }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode ?? 0));
      });
      sent.on('error', reject);
      sent.end(method === 'POST' || method === 'PUT' ? body : undefined);
    });
  };
  const seen = new Map<number, number>();
  for (let seed = 0; seed < REQUESTS; seed += AT_ONCE) {
    const statuses = await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => send(seed + index)));
    statuses.forEach((status, index) => {
      seen.set(status, (seen.get(status) ?? 0) + 1);
      if (status >= 500 && status !== 503)
        t.fail(`${status} ${JSON.stringify(make(seed + index)).slice(0, 500)}`);
    });
  }
  t.ok(
    [200, 201, 302, 303, 400, 401, 403, 404, 415].every((status) => seen.has(status)),
    JSON.stringify([...seen]),
  );
  t.equal((await idp.authorize(client, agent)).status, 302, 'and it goes on working');
  t.equal(({} as Record<string, unknown>)['x'], undefined);
});
