import t from 'tap';
import { type FuzzTarget, fuzz } from '../kit/fuzz/engine.js';
import { mutate, mutateBytes } from '../kit/fuzz/mutations.js';
import { bytesOf, type FuzzRequest } from '../kit/fuzz/request.js';
import { FUZZ_TARGETS } from '../kit/fuzz/targets.js';
import { diceOf } from '../kit/stripe-simulator.js';
import { temporaryFolder } from '../kit/tmp.js';

/** A short round of `npm run fuzz`, the same in each run. */

const REQUESTS = 2600;

/** How many of the routes may never succeed: some need an authenticator, a provider or a code of a mail at its time. */
const SHARE = 0.4;

for (const [product, open] of Object.entries(FUZZ_TARGETS)) {
  t.test(`${product} answers every malformed request to any route with a documented error`, async (t) => {
    const target = await open(temporaryFolder(t));
    t.teardown(() => target.stop());
    // Not silent for so long that it would be taken for hanging.
    let calls = 0;
    const { problems, untouched, unsuccessful, statuses } = await fuzz(target, {
      requests: REQUESTS,
      seed: 1,
      clients: 4,
      progress: (done) => ++calls % 100 === 0 && t.comment(`${done} requests`),
    });
    t.same(problems, []);
    t.same(untouched, [], 'every route was reached');
    t.ok(unsuccessful.length < target.routes.length * SHARE, `no success at ${unsuccessful.join(', ')}`);
    const seen = Object.keys(statuses).map(Number);
    for (const status of [200, 201, 400, 401, 404, 415]) t.ok(seen.includes(status), `${status}`);
  });
}

t.test('the same seed mutates a request in the same way', async (t) => {
  const draft = (): FuzzRequest => ({
    method: 'POST',
    path: '/x',
    query: [],
    headers: [],
    body: { json: { a: 'b' } },
  });
  const mutated = (seed: number) => {
    const [dice, request] = [diceOf(seed), draft()];
    mutate(request, () => 'known', dice);
    return mutateBytes(bytesOf(request).bytes, dice).toString('latin1');
  };
  t.equal(mutated(1), mutated(1));
  t.not(mutated(1), mutated(2));
});

t.test('the fuzzer detects every kind of invalid answer', async (t) => {
  const { createServer } = await import('node:http');
  const WRONG: Record<string, [status: number, headers: Record<string, string>, body: string]> = {
    failure: [500, {}, '{"error":"server_error","error_description":"x"}'],
    unknown: [503, {}, '{"error":"other","error_description":"x"}'],
    shape: [400, {}, '{"statusCode":400,"error":"Bad Request"}'],
    broken: [200, {}, '{'],
    away: [302, { location: 'https://evil.test/cb?code=1' }, ''],
    inside: [400, {}, '{"error":"x","error_description":"at Object.x (/a.js:1)"}'],
  };
  const server = createServer(({ url = '' }, response) => {
    const [status, headers, body] = WRONG[url.slice(1)] ?? [200, {}, '{}'];
    response.writeHead(status, {
      ...{ 'content-type': 'application/json', 'x-content-type-options': 'nosniff', 'x-request-id': '1' },
      ...{ 'content-length': Buffer.byteLength(body), ...headers },
    });
    response.end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as { port: number };
  const route = { method: 'GET', url: '/x', schema: undefined };
  for (const name of ['fine', ...Object.keys(WRONG)]) {
    const target = {
      url: `http://127.0.0.1:${port}`,
      routes: [route],
      busiest: [route],
      clock: { now: () => 0, advance() {}, set() {} },
      visitor: () => ({
        // The answer is the same for every mutation.
        draft: () => ({ method: 'GET', path: `/${name}`, query: [], headers: [] }),
        learn() {},
        known: () => name,
      }),
      unavailable: ['temporarily_unavailable'],
      codeOf: (body) =>
        ((body ?? {}) as { error_description?: string; error?: string }).error_description && 'code',
      prove: async () => {},
      stop: async () => {},
    } satisfies FuzzTarget;
    const { problems } = await fuzz(target, { requests: 60, seed: 3, clients: 1 });
    if (name === 'fine') t.same(problems, []);
    else t.ok(problems.length > 0, name);
  }
});
