import { join } from 'node:path';
import t, { type Test } from 'tap';
import { systemClock } from '../../../src/core/kernel/clock.js';
import { newId, sha256, systemRandom, UNUSED_HASH } from '../../../src/core/kernel/secrets.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createDelegations } from '../../../src/idp/oidc/delegations/service.js';
import { delegationCollection } from '../../../src/idp/oidc/delegations/store.js';
import { newRefreshToken } from '../../../src/idp/oidc/grant-tokens.js';
import { createRevocations, revocationCollection } from '../../../src/idp/oidc/revocations/service.js';
import { GRANT, grantCollection } from '../../../src/idp/oidc/store.js';
import { TOKEN_EXCHANGE } from '../../../src/idp/oidc/tokens/request.js';
import { readAgentKey } from '../../../src/idp/provisioning/agent-keys.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { createResourceServer } from '../../../src/resource-server/service.js';
import { onMongod } from '../../core/storage/mongod.js';
import { type Answer, basic, PASSWORD, parseJson } from '../../kit/app.js';
import { assertion, clientKey } from '../../kit/client-keys.js';
import { TYPES } from '../../kit/delegations.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  CALLBACK,
  codeIn,
  ISSUER,
  idpOptions,
  type Parameters,
  type RegisteredClient,
  redemption,
  refreshing,
  SEED,
} from '../../kit/idp.js';
import { ON_THE_HOST } from '../../kit/operator.js';
import { compiled, startProgram } from '../../kit/process.js';
import { FILES, FILES_INPUT, resourcesIn } from '../../kit/resources.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';

/** Four processes on one store, each with the most verbose log. */

const PROCESSES = 4;

async function post(
  url: string,
  body: object | string,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: Answer['body'] }> {
  const isForm = typeof body === 'string';
  const type = isForm ? 'application/x-www-form-urlencoded' : 'application/json';
  const payload = isForm ? body : JSON.stringify(body);
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': type, ...headers },
    body: payload,
    redirect: 'manual',
  });
  return { status: response.status, body: parseJson(await response.text()) };
}

/** `count` calls, spread over all processes. */
const spread = <T>(urls: string[], count: number, call: (url: string) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, index) => call(urls[index % urls.length] as string)));

async function start(t: Test, more: { databaseUri?: string } = {}) {
  const folder = temporaryFolder(t);
  const options = JSON.stringify({ ...idpOptions(folder), logLevel: 'trace', ...more });
  const programs = Array.from({ length: PROCESSES }, () =>
    startProgram(t, compiled('test/kit/idp-server.js'), { args: [options] }),
  );
  const urls = await Promise.all(programs.map((program) => program.url()));
  const admin = { authorization: `Bearer ${ADMIN_TOKEN}` };
  const made = await post(`${urls[0]}/v1/clients`, { redirect_uris: CALLBACK }, admin);
  const client = { id: made.body.client_id, secret: made.body.client_secret, redirectUri: CALLBACK };
  const { body: agent } = await post(`${urls[1]}/v1/agents`, { handle: 'agent@example.test' }, admin);
  const authorization = basic(agent.handle, agent.password);
  const secrets: string[] = [client.secret, agent.password, ADMIN_TOKEN, SEED, PASSWORD];
  const store = await openStore(more.databaseUri ?? `sqlite:${join(folder, 'idp.db')}`);
  t.teardown(() => store.close());
  return { programs, urls, client, agent, authorization, secrets, store, grants: grantCollection(store) };
}

async function codeFor(
  url: string,
  client: RegisteredClient,
  authorization: string,
  more: Parameters = {},
): Promise<string> {
  const path = authorizePath(client, more);
  const answer = await fetch(url + path, { headers: { authorization }, redirect: 'manual' });
  return codeIn(answer.headers.get('location') ?? undefined);
}

/** Operations that may succeed once, on whichever process. */
async function races(
  t: Test,
  { urls, client, authorization, secrets, grants }: Awaited<ReturnType<typeof start>>,
): Promise<void> {
  const [url] = urls as [string];
  await t.test('a code is redeemed once, and its replay revokes the tokens issued for it', async (t) => {
    for (let round = 0; round < 5; round++) {
      const code = await codeFor(url, client, authorization);
      const form = redemption(client, code);
      const answers = await spread(urls, 50, (url) => post(`${url}/token`, form));
      const winners = answers.filter(({ status }) => status === 200);
      t.equal(winners.length, 1);
      t.equal(
        answers.filter(({ status, body }) => status === 400 && body.error === 'invalid_grant').length,
        49,
      );
      const token = winners[0]?.body.access_token;
      secrets.push(code, token, winners[0]?.body.id_token);
      const known = await spread(urls, PROCESSES, async (url) => {
        const headers = { authorization: `Bearer ${token}` };
        return (await fetch(`${url}/userinfo`, { headers })).status;
      });
      t.same(known, [401, 401, 401, 401]);
    }
  });

  await t.test('concurrent refreshes of one token have one successor', async (t) => {
    for (let round = 0; round < 5; round++) {
      const code = await codeFor(url, client, authorization, { scope: 'openid offline_access' });
      const { body } = await post(`${url}/token`, redemption(client, code));
      const form = refreshing(client, body.refresh_token);
      const answers = await spread(urls, 50, (url) => post(`${url}/token`, form));
      t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
      t.equal(new Set(answers.map(({ body }) => body.refresh_token)).size, 1);
      t.equal(new Set(answers.map(({ body }) => body.access_token)).size, 1);
      const next = answers[0]?.body;
      const grant = await grants.findOne({ id: `gr_${body.refresh_token.slice(3, 35)}` });
      t.match(
        grant,
        { revision: 1, accessTokens: { length: 2 } },
        'one refresh wrote, the others returned its result',
      );
      secrets.push(body.refresh_token, next.refresh_token, next.access_token);
      const later = await post(`${url}/token`, refreshing(client, next.refresh_token));
      t.equal(later.status, 200);
      const stale = await spread(urls, PROCESSES, (url) => post(`${url}/token`, form));
      t.same(
        stale.map(({ status }) => status),
        [400, 400, 400, 400],
      );
      const dead = await post(`${url}/token`, refreshing(client, later.body.refresh_token));
      t.equal(dead.status, 400, 'reuse ends the family');
    }
  });
}

const NOTES = 'https://notes.example.test';

/** One token of a delegation, used on every process. */
async function delegates(
  t: Test,
  { urls, client, agent, secrets, store, grants }: Awaited<ReturnType<typeof start>>,
): Promise<void> {
  const tools = { clock: systemClock, random: systemRandom };
  const revocations = createRevocations({
    revocations: revocationCollection(store),
    resources: { hasAny: async () => true },
    findPrincipal: async () => null,
    ...tools,
  });
  const principals = principalCollection(store);
  const directory = { findPrincipal: (id: string) => principals.findOne({ id, state: 'active' }) };
  const audit = { record: async () => undefined };
  const delegations = createDelegations({
    ...{ delegations: delegationCollection(store), directory, revocations, audit, ...tools },
  });
  await resourcesIn(store, tools).add(NOTES, FILES_INPUT, ON_THE_HOST);
  const handle = 'delegating@example.test';
  const { body: person } = await post(`${urls[0]}/v1/accounts`, {
    handle,
    password: PASSWORD,
    kind: 'human',
  });
  const key = clientKey();
  await principals.updateOne(
    { id: agent.sub },
    { set: { keys: [readAgentKey(key.jwk, systemClock.now())] } },
  );
  /** What a person has allowed, with its redeemed code. */
  const give = async () => {
    const [found, acting] = [
      await directory.findPrincipal(person.sub),
      await directory.findPrincipal(agent.sub),
    ];
    if (!found || !acting) throw new Error('A party of the delegation is missing.');
    const id = newId(GRANT, systemClock, systemRandom);
    const scopes = ['files:read'];
    const parties = { person: found, agent: acting, resource: NOTES, scopes, clientId: client.id, txn: id };
    const given = await delegations.give({ ...parties, maxDepth: 1, lifetimeMs: 3_600_000 }, '192.0.2.1');
    const token = newRefreshToken(id, systemRandom, SEED, 'dt_');
    const now = systemClock.now();
    await grants.insert({
      ...{ id, codeHash: UNUSED_HASH, clientId: client.id, sub: found.id, scope: '' },
      ...(found.epoch !== undefined && { epoch: found.epoch }),
      resources: [{ resource: NOTES, scopes }],
      delegation: {
        ...{ id: given.id, agent: acting.id, expiresAt: given.expiresAt },
        ...(given.agentEpoch !== undefined && { agentEpoch: given.agentEpoch }),
      },
      ...{ authTime: now, createdAt: now, codeExpiresAt: now, consumedAt: now },
      ...{ refreshHash: sha256(token), refreshExpiresAt: given.expiresAt },
    });
    secrets.push(token);
    return { given, token, id };
  };
  const exchange = async (url: string, token: string) => {
    const now = systemClock.now();
    const form = {
      ...{ grant_type: TOKEN_EXCHANGE, client_id: client.id, client_secret: client.secret },
      ...{ subject_token: token, subject_token_type: TYPES.delegation, actor_token_type: TYPES.jwt },
      actor_token: await assertion(key, { clientId: agent.sub, issuer: ISSUER, now }),
    };
    return post(`${url}/token`, String(new URLSearchParams(form)));
  };

  for (let round = 0; round < 3; round++) {
    const { given, token, id } = await give();
    const answers = await spread(urls, 50, (url) => exchange(url, token));
    t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
    t.equal(new Set(answers.map(({ body }) => body.delegation_token)).size, 1, 'one successor');
    t.match(await grants.findOne({ id }), { revision: 1, accessTokens: { length: 1 } }, 'one exchange wrote');
    const { body } = await exchange(urls[1] ?? '', answers[0]?.body.delegation_token);
    secrets.push(answers[0]?.body.delegation_token, body.delegation_token);
    const stale = await spread(urls, PROCESSES, (url) => exchange(url, token));
    t.same(
      stale.map(({ status }) => status),
      [400, 400, 400, 400],
      'reuse',
    );
    t.equal((await exchange(urls[2] ?? '', body.delegation_token)).status, 400, 'ends the chain');
    t.equal(await delegations.find(given.id), null, 'and the delegation');
  }

  const { given, token } = await give();
  const [isEnded, answers] = await Promise.all([
    delegations.end(given.id, { ip: '192.0.2.1' }),
    spread(urls, 50, (url) => exchange(url, token)),
  ]);
  t.equal(isEnded, true);
  t.ok(answers.every(({ status }) => status === 200 || status === 400));
  const later = await spread(urls, PROCESSES, (url) => exchange(url, token));
  t.same(
    later.map(({ status }) => status),
    [400, 400, 400, 400],
    'an ended delegation stays ended',
  );
}

/** Every way to end tokens from one process, which an API behind each of the others learns. */
async function killSwitch(
  t: Test,
  { urls, client, agent, authorization, secrets, store }: Awaited<ReturnType<typeof start>>,
): Promise<void> {
  await resourcesIn(store, { clock: systemClock, random: systemRandom }).add(FILES, FILES_INPUT, ON_THE_HOST);
  const [url] = urls as [string];
  const servers = urls.map((origin) =>
    createResourceServer({
      issuer: ISSUER,
      resource: FILES,
      fetch: (path, init) => fetch(path.replace(ISSUER, origin), init),
    }),
  );
  t.teardown(() => {
    for (const server of servers) server.close();
  });
  const tokenFor = async (): Promise<string> => {
    const more = { resource: FILES, scope: 'openid files:read' };
    const code = await codeFor(url, client, authorization, more);
    const { body } = await post(`${url}/token`, redemption(client, code));
    secrets.push(code, body.access_token);
    return body.access_token;
  };
  const verdicts = (token: string) =>
    Promise.all(
      servers.map((server) =>
        server.verify(new Request(FILES, { headers: { authorization: `Bearer ${token}` } })).then(
          () => 'accepted',
          ({ code }) => code,
        ),
      ),
    );
  const admin = { authorization: `Bearer ${ADMIN_TOKEN}` };
  const ends: Record<string, (token: string) => Promise<unknown>> = {
    'a revoked token': (token) =>
      post(`${url}/revoke`, `token=${token}`, { authorization: basic(client.id, client.secret) }),
    'a disabled agent': () => post(`${url}/v1/principals/${agent.sub}/disable`, {}, admin),
  };
  for (const [name, end] of Object.entries(ends)) {
    const token = await tokenFor();
    await waitUntil('the metadata name the list', async () => {
      const answers = urls.map((url) => fetch(`${url}/.well-known/openid-configuration`));
      const metadata = await Promise.all((await Promise.all(answers)).map((answer) => answer.json()));
      return metadata.every((each) => 'revocation_list_uri' in (each as object));
    });
    t.same(await verdicts(token), Array(PROCESSES).fill('accepted'), name);
    t.equal(((await end(token)) as { status: number }).status, 200, name);
    const ended = performance.now();
    await waitUntil(name, async () =>
      (await verdicts(token)).every((verdict) => verdict === 'invalid_token'),
    );
    t.comment(`${name}: refused everywhere after ${Math.round(performance.now() - ended)} ms`);
  }
}

await onMongod((server) => {
  t.test('four processes share one MongoDB', async (t) => {
    const started = await start(t, { databaseUri: server.fresh(t) });
    await races(t, started);
    await t.test('a delegation has one chain', (t) => delegates(t, started));
    await t.test('what ends a token reaches every API', (t) => killSwitch(t, started));
  });
});

t.test('four processes share one SQLite file', async (t) => {
  const started = await start(t);
  const { programs, urls, client, authorization, secrets } = started;
  const [url] = urls as [string];

  await t.test('every race has one winner', (t) => races(t, started));

  await t.test('a delegation has one chain', (t) => delegates(t, started));

  await t.test('concurrent sign-ups of one handle create one account', async (t) => {
    const body = { handle: 'same@example.test', password: PASSWORD };
    const answers = await spread(urls, 50, (url) => post(`${url}/v1/accounts`, body));
    t.same(answers.map(({ status }) => status).sort(), [201, ...Array(49).fill(409)]);
  });

  await t.test('logs contain no secret and no query, whatever fails', async (t) => {
    const canary = 'canary-5QmXv8';
    const code = await codeFor(url, client, authorization);
    const { body } = await post(`${url}/token`, redemption(client, code));
    secrets.push(code, body.access_token, body.id_token, canary);
    const form = await fetch(
      url + authorizePath(client, { state: canary, nonce: canary, login_hint: canary }),
    );
    const interaction = /name="interaction" value="([^"]+)/.exec(await form.text())?.[1] as string;
    const cookie = form.headers.getSetCookie()[0]?.split(';', 1)[0] as string;
    secrets.push(interaction, cookie.split('=')[1] as string);
    const login = new URLSearchParams({
      interaction,
      handle: 'same@example.test',
      password: canary,
    }).toString();
    await post(`${url}/authorize/login`, login, { cookie });
    await post(`${url}/authorize/login?${login}`, '{', { cookie });
    await post(`${url}/token?${redemption(client, code)}`, redemption(client, canary));
    await post(`${url}/v1/accounts`, { handle: `${canary}:`, password: canary });
    await post(`${url}/v1/agents`, {}, { authorization: `Bearer ${canary}` });
    for (const path of [
      `/userinfo?access_token=${canary}`,
      `/${canary}`,
      `/%zz${canary}`,
      `/authorize?${canary}`,
    ]) {
      await fetch(url + path, { headers: { authorization: basic('agent@example.test', canary) } });
      await fetch(url + path, { headers: { authorization: `Bearer ${canary}`, cookie: `idp=${canary}` } });
      await fetch(url + path, { headers: { accept: 'text/html', 'x-request-id': canary } });
    }
    await t.test('what ends a token reaches every API', (t) => killSwitch(t, started));
    for (const program of programs) t.equal(await program.terminate(), null, 'it has no handler of its own');
    const log = programs.flatMap(({ lines }) => lines).join('\n');
    t.match(log, /"route":"\/token"/, 'something was logged');
    for (const secret of secrets) t.notOk(log.includes(secret), secret);
    t.notMatch(log, /client_id=|redirect_uri=|agent@example|"level":50/);
  });
});
