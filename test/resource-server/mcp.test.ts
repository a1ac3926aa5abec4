import express from 'express';
import Fastify from 'fastify';
import type { JWTPayload } from 'jose';
import t, { type Test } from 'tap';
import { toSeconds } from '../../src/core/kernel/clock.js';
import { type ProtectMcpOptions, protectMcp } from '../../src/resource-server/mcp.js';
import { fakeClock } from '../kit/clock.js';
import { listen } from '../kit/listener.js';
import { tokenIssuer } from '../kit/token-issuer.js';

/** MCP endpoints of applications with Fastify and Express. */

const RESOURCE = 'https://api.example.test/mcp';
const METADATA = '/.well-known/oauth-protected-resource/mcp';

const FRAMEWORKS = {
  async Fastify(t: Test, options: ProtectMcpOptions) {
    const app = Fastify();
    t.teardown(() => app.close());
    app.addHook('onRequest', async (_, reply) => void reply.header('x-host', 'hook'));
    protectMcp(app, options);
    return app.listen({ host: '127.0.0.1', port: 0 });
  },
  async Express(t: Test, options: ProtectMcpOptions) {
    const app = express();
    app.use((_request, response, next) => {
      response.setHeader('x-host', 'hook');
      next();
    });
    app.use(express.json());
    const { close } = protectMcp(app, options);
    t.teardown(close);
    app.use((_error: unknown, _request: unknown, response: express.Response, _next: unknown) => {
      response.status(500).json({ error: 'server_error' });
    });
    return listen(t, app);
  },
};

const toolCall = (name: unknown) => ({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name } });

for (const [framework, open] of Object.entries(FRAMEWORKS)) {
  const endpoint = async (t: Test, more: Partial<ProtectMcpOptions> = {}) => {
    const clock = fakeClock();
    const issuer = await tokenIssuer(t, { clock });
    const url = await open(t, {
      issuer: issuer.url,
      resource: RESOURCE,
      scopes: ['notes:read'],
      tools: {
        add_note: { scopes: ['notes:write'] },
        remove_note: { scopes: ['notes:write', 'notes:remove'] },
        publish: { acr: ['mfa'], maxAge: 300 },
      },
      clock,
      onFailure: () => undefined,
      handler: ({ request, response, body, token, saas }) => {
        const { auth } = request as typeof request & { auth: { clientId: string; scopes: string[] } };
        const given = { method: request.method, body, subject: token.subject, auth, saas };
        response.setHeader('content-type', 'application/json');
        response.end(JSON.stringify(given));
      },
      ...more,
    });
    const bearer = async (scope: string, change: JWTPayload = {}) => {
      const now = toSeconds(clock.now());
      const claims = { iss: issuer.url, aud: RESOURCE, sub: 'usr_1', client_id: 'app_1', jti: 'at_1', scope };
      const times = { iat: now, exp: now + 600, auth_time: now - 10, acr: 'pwd' };
      return `Bearer ${await issuer.sign({ ...claims, ...times, kind: 'human', ...change })}`;
    };
    const call = async (
      authorization: string | undefined,
      body?: unknown,
      { method = 'POST', headers = {} }: { method?: string; headers?: Record<string, string> } = {},
    ) => {
      const answer = await fetch(`${url}/mcp`, {
        method,
        headers: {
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...(authorization !== undefined && { authorization }),
          ...headers,
        },
        ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      });
      const challenge = answer.headers.get('www-authenticate') ?? '';
      // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
      const json: any = await answer.json();
      return { status: answer.status, challenge, json, host: answer.headers.get('x-host') };
    };
    return { url, issuer, call, bearer };
  };

  t.test(`${framework}: metadata are at the path of the endpoint and name its address`, async (t) => {
    const { url, issuer } = await endpoint(t);
    const answer = await fetch(url + METADATA);
    t.equal(answer.headers.get('access-control-allow-origin'), '*');
    t.match(await answer.json(), {
      resource: RESOURCE,
      authorization_servers: [issuer.url],
      scopes_supported: ['notes:read', 'notes:write', 'notes:remove'],
    });
    t.equal((await fetch(`${url}/.well-known/oauth-protected-resource`)).status, 404);
  });

  t.test(`${framework}: without a valid token for this address, nothing reaches the handler`, async (t) => {
    const { call, bearer } = await endpoint(t);
    const challenge = `resource_metadata="https://api.example.test${METADATA}"`;
    for (const method of ['POST', 'GET', 'DELETE'])
      t.match(await call(undefined, undefined, { method }), {
        status: 401,
        challenge: `Bearer scope="notes:read", ${challenge}`,
        json: { error: 'invalid_token' },
        host: 'hook',
      });
    t.match(
      await call(undefined, toolCall('add_note')),
      { status: 401, challenge: `Bearer scope="notes:read notes:write", ${challenge}` },
      'the first challenge names all that the call needs',
    );
    const others = [{ aud: 'https://api.example.test' }, { aud: `${RESOURCE}/other` }, { exp: 1 }];
    for (const change of others)
      t.match(await call(await bearer('notes:read notes:write', change), toolCall('add_note')), {
        status: 401,
        challenge: /error="invalid_token"/,
      });
  });

  t.test(`${framework}: a permitted request reaches the handler with the token and the body`, async (t) => {
    const { call, bearer } = await endpoint(t);
    const body = toolCall('add_note');
    const answer = await call(await bearer('notes:read notes:write'), body);
    t.match(answer, {
      status: 200,
      host: 'hook',
      json: {
        method: 'POST',
        body,
        subject: 'usr_1',
        auth: { token: 'at_1', clientId: 'app_1', scopes: ['notes:read', 'notes:write'] },
      },
    });
    t.equal(typeof answer.json.auth.expiresAt, 'number');
    t.equal((await call(await bearer('notes:read'), undefined, { method: 'GET' })).status, 200);
  });

  t.test(`${framework}: a tool needs its scopes, and one challenge names all of them`, async (t) => {
    const { call, bearer } = await endpoint(t);
    const reader = await bearer('notes:read');
    t.equal((await call(reader, toolCall('list_notes'))).status, 200);
    t.equal((await call(reader, toolCall('constructor'))).status, 200, 'no tool of this name needs more');
    const lacking = async (authorization: string, body: unknown, scope: string) => {
      const answer = await call(authorization, body);
      t.equal(answer.status, 403, JSON.stringify(body));
      t.equal(answer.json.error, 'insufficient_scope');
      t.ok(answer.challenge.includes(`scope="${scope}"`), answer.challenge);
    };
    await lacking(reader, toolCall('add_note'), 'notes:read notes:write');
    const batch = [toolCall('list_notes'), null, toolCall('add_note'), toolCall('remove_note')];
    await lacking(reader, batch, 'notes:read notes:write notes:remove');
    await lacking(reader, toolCall(['add_note']), 'notes:read notes:write notes:remove');
    await lacking(await bearer('other'), toolCall('add_note'), 'other notes:read notes:write');
    await lacking(await bearer('notes:write'), toolCall('add_note'), 'notes:write notes:read');
    t.equal((await call(await bearer('notes:read notes:write notes:remove'), batch)).status, 200);
  });

  t.test(`${framework}: a tool can need a recent and strong sign-in`, async (t) => {
    const { call, bearer } = await endpoint(t);
    const challenge = /error="insufficient_user_authentication".*acr_values="mfa", max_age="300"/;
    t.match(await call(await bearer('notes:read'), toolCall('publish')), { status: 401, challenge });
    const strong = { acr: 'mfa' };
    t.equal((await call(await bearer('notes:read', strong), toolCall('publish'))).status, 200);
    const batch = [toolCall('add_note'), toolCall('publish')];
    t.match(await call(await bearer('notes:read notes:write'), batch), { status: 401, challenge });
    t.match(await call(await bearer('notes:read', strong), batch), { status: 403 });
  });

  t.test(`${framework}: a tool can need an approval by a person, of exactly this and once`, async (t) => {
    const details = { type: 'payment', amount: 12 };
    const { call, bearer } = await endpoint(t, {
      tools: { pay: { approval: ({ amount }) => ({ type: 'payment', amount, note: undefined }) } },
    });
    const pay = (amount: number) => ({ ...toolCall('pay'), params: { name: 'pay', arguments: { amount } } });
    const needed = { error: 'insufficient_scope', authorization_details: [details] };
    const plain = await call(await bearer('notes:read'), pay(12));
    t.match(plain, { status: 403, json: needed, challenge: /error="insufficient_scope"/ });
    const approved = (...authorization_details: unknown[]) =>
      bearer('notes:read', { authorization_details, jti: `at_${JSON.stringify(authorization_details)}` });
    for (const wrong of [
      [{ ...details, amount: '12' }],
      [{ ...details, more: 1 }],
      [details, details],
      [{ amount: 12 }],
      ['payment'],
      [],
    ])
      t.match(await call(await approved(...wrong), pay(12)), { status: 403, json: needed });
    const token = await approved(details);
    t.equal((await call(token, pay(13))).status, 403, 'another amount uses nothing up');
    t.equal((await call(token, toolCall('other'))).status, 200, 'nor does another tool');
    t.equal((await call(token, [pay(12), pay(12)])).status, 403, 'a batch has one approval');
    t.equal((await call(token, pay(12))).status, 403, 'and that is used up');

    const fresh = await bearer('notes:read', { authorization_details: [details], jti: 'at_fresh' });
    const many = await Promise.all(Array.from({ length: 50 }, () => call(fresh, pay(12))));
    t.equal(many.filter(({ status }) => status === 200).length, 1);
  });

  t.test(`${framework}: a handler demands an approval, and the refusal is its challenge`, async (t) => {
    const details = { type: 'payment', amount: 12 };
    const { call, bearer } = await endpoint(t, {
      handler: async ({ response, approve }) => {
        const { by, txn } = await approve(details);
        response.end(JSON.stringify({ by, txn }));
      },
    });
    t.match(await call(await bearer('notes:read'), {}), {
      status: 403,
      json: { error: 'insufficient_scope', authorization_details: [details] },
      challenge: /error="insufficient_scope".*authorization_details=/,
    });
    const token = await bearer('notes:read', { authorization_details: [details], txn: 'gr_1' });
    t.match(await call(token, {}), { status: 200, json: { by: 'usr_1', txn: 'gr_1' } });
    t.equal((await call(token, {})).status, 403, 'once');
  });

  t.test(`${framework}: bodies that were not parsed, and pages of other origins, are refused`, async (t) => {
    const { call, bearer } = await endpoint(t);
    const reader = await bearer('notes:read');
    const text = JSON.stringify(toolCall('add_note'));
    for (const type of ['text/plain', 'application/jsonp', 'application/x-www-form-urlencoded'])
      t.equal((await call(reader, text, { headers: { 'content-type': type } })).status, 415, type);
    t.equal((await call(reader)).status, 415, 'no body');
    const from = (origin: string) => call(reader, toolCall('list_notes'), { headers: { origin } });
    t.equal((await from('https://api.example.test')).status, 200);
    t.match(await from('https://evil.test'), { status: 403, json: { error: 'FORBIDDEN' } });
  });

  t.test(`${framework}: a handler that fails answers with 500, and the next request works`, async (t) => {
    let isFailing = true;
    const { call, bearer } = await endpoint(t, {
      handler: async ({ response }) => {
        if (isFailing) throw new Error('a bug');
        response.end('{}');
      },
    });
    const reader = await bearer('notes:read');
    t.match(await call(reader, {}), { status: 500, json: { error: 'server_error' } });
    isFailing = false;
    t.equal((await call(reader, {})).status, 200);
  });
}

t.test('it belongs to the root of the application, and Express needs a parser of bodies', async (t) => {
  const clock = fakeClock();
  const issuer = await tokenIssuer(t, { clock });
  const options = { issuer: issuer.url, resource: RESOURCE, clock, handler: () => undefined };
  const app = Fastify();
  t.teardown(() => app.close());
  await app.register(
    async (scope) => void t.throws(() => protectMcp(scope, options), /at the root of the application/),
    { prefix: '/api' },
  );
  t.throws(() => protectMcp(app, { ...options, resource: 'mcp' }), /resource must be an https address/);

  const bare = express();
  t.teardown(protectMcp(bare, options).close);
  const url = await listen(t, bare);
  const now = toSeconds(clock.now());
  const token = await issuer.sign({
    ...{ iss: issuer.url, aud: RESOURCE, sub: 'usr_1', client_id: 'app_1', jti: 'at_1' },
    ...{ iat: now, exp: now + 600 },
  });
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const answer = await fetch(`${url}/mcp`, { method: 'POST', headers, body: JSON.stringify(toolCall('x')) });
  t.equal(answer.status, 415);
  t.match(await answer.json(), { error_description: /express\.json/ });
});
