import t from 'tap';
import { type FuzzTarget, fuzz } from '../kit/fuzz/engine.js';

/** The fuzzer itself: `npm run fuzz` sends its requests. */

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
