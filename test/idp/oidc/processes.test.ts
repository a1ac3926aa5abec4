import t, { type Test } from 'tap';
import { systemClock } from '../../../src/core/kernel/clock.js';
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { openStore } from '../../../src/core/storage/open.js';
import { grantCollection } from '../../../src/idp/oidc/store.js';
import { CIBA_GRANT } from '../../../src/idp/oidc/tokens/request.js';
import { EVERY_AGENT } from '../../../src/idp/permissions/store.js';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { registrationTokenCollection } from '../../../src/idp/registration/store.js';
import { createRegistrationTokens } from '../../../src/idp/registration/tokens.js';
import { onEngines } from '../../core/storage/engines.js';
import { Agent } from '../../kit/agent.js';
import { type Answer, auditOf, basic, PASSWORD, parseJson } from '../../kit/app.js';
import { DETAILS, PAYMENT, PAYMENTS } from '../../kit/approvals.js';
import { asserted, assertion, clientKey } from '../../kit/client-keys.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
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
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { compiled, startProgram } from '../../kit/process.js';
import { FILES_INPUT, resourcesIn } from '../../kit/resources.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { dpopKey } from '../../kit/token-issuer.js';
import { waitUntil } from '../../kit/wait.js';

/** Four processes on one store, each with the most verbose log. */

const PROCESSES = 4;
const ROUNDS = 4;
const USES = 50;

const form = (fields: Record<string, string> | string) => ({
  method: 'POST',
  body: new URLSearchParams(fields),
});

const json = (body: object, token?: string) => ({
  method: 'POST',
  headers: {
    'content-type': 'application/json',
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  },
  body: JSON.stringify(body),
});

async function send(
  url: string,
  init: RequestInit = {},
): Promise<Pick<Answer, 'status' | 'body'> & { headers: Headers }> {
  const response = await fetch(url, { redirect: 'manual', ...init });
  return { status: response.status, headers: response.headers, body: parseJson(await response.text()) };
}

/** Processes, and a client and an agent in their store. */
async function start(t: Test, databaseUri: string) {
  const options = {
    ...idpOptions(temporaryFolder(t)),
    databaseUri,
    logLevel: 'trace',
    clientRegistration: true,
    approvals: true,
  };
  const programs = Array.from({ length: PROCESSES }, () =>
    startProgram(t, compiled('test/kit/idp-server.js'), { args: [JSON.stringify(options)] }),
  );
  const urls = await Promise.all(programs.map((program) => program.url()));
  const [url] = urls as [string];
  const store = await openStore(databaseUri);
  t.teardown(() => store.close());
  const admin = async (path: string, body: object) => (await send(url + path, json(body, ADMIN_TOKEN))).body;
  const made = await admin('/v1/clients', { redirect_uris: CALLBACK });
  const client = { id: made.client_id, secret: made.client_secret, redirectUri: CALLBACK };
  const agent = await admin('/v1/agents', { handle: 'agent@example.test' });
  const signedIn = { authorization: basic(agent.handle, agent.password) };
  return {
    ...{ programs, url, urls, store, admin, client, agent, signedIn },
    secrets: [client.secret, agent.password, ADMIN_TOKEN, SEED, PASSWORD] as string[],
    async codeFor(more: Parameters = {}, by: RegisteredClient = client) {
      const { headers } = await send(url + authorizePath(by, more), { headers: signedIn });
      return codeIn(headers.get('location') ?? undefined);
    },
    /** Concurrent requests, to each process in turn. */
    spread: (count: number, path: string, init: () => RequestInit = () => ({})) =>
      Promise.all(Array.from({ length: count }, (_, index) => send(urls[index % PROCESSES] + path, init()))),
  };
}

const statuses = (answers: { status: number }[]) => answers.map(({ status }) => status).sort();

/** What may be used once is used once in all processes together. */
async function races(
  t: Test,
  { url, urls, store, admin, client, signedIn, secrets, codeFor, spread }: Awaited<ReturnType<typeof start>>,
): Promise<void> {
  await t.test('a code is redeemed once, and its replay revokes the tokens issued for it', async (t) => {
    for (let round = 0; round < ROUNDS; round++) {
      const code = await codeFor();
      const answers = await spread(USES, '/token', () => form(redemption(client, code)));
      const winners = answers.filter(({ status }) => status === 200);
      t.equal(winners.length, 1);
      t.equal(answers.filter(({ body }) => body.error === 'invalid_grant').length, USES - 1);
      const [token, idToken] = [winners[0]?.body.access_token, winners[0]?.body.id_token];
      secrets.push(code, token, idToken);
      const known = await spread(PROCESSES, '/userinfo', () => ({
        headers: { authorization: `Bearer ${token}` },
      }));
      t.same(statuses(known), [401, 401, 401, 401]);
    }
  });

  await t.test('concurrent refreshes by a client that authenticates all succeed', async (t) => {
    const { body } = await send(
      `${url}/token`,
      form(redemption(client, await codeFor({ scope: 'openid offline_access' }))),
    );
    const answers = await spread(USES, '/token', () => form(refreshing(client, body.refresh_token)));
    t.same(new Set(statuses(answers)), new Set([200]));
    t.same(new Set(answers.map(({ body }) => body.refresh_token)), new Set([body.refresh_token]));
    const issued = new Set(answers.map(({ body }) => body.access_token));
    for (const token of issued) {
      const { status } = await send(`${url}/userinfo`, { headers: { authorization: `Bearer ${token}` } });
      t.equal(status, 200, 'each of their access tokens is valid');
    }
  });

  await t.test('concurrent refreshes of one token have one successor', async (t) => {
    const made = await admin('/v1/clients', { redirect_uris: CALLBACK, public: true });
    const client: RegisteredClient = { id: made.client_id, redirectUri: CALLBACK };
    for (let round = 0; round < ROUNDS; round++) {
      const code = await codeFor({ scope: 'openid offline_access' }, client);
      const { body } = await send(`${url}/token`, form(redemption(client, code)));
      const refresh = (token: string) => () => form(refreshing(client, token));
      const answers = await spread(USES, '/token', refresh(body.refresh_token));
      t.same(new Set(statuses(answers)), new Set([200]));
      t.equal(new Set(answers.map(({ body }) => body.refresh_token)).size, 1);
      t.equal(new Set(answers.map(({ body }) => body.access_token)).size, 1);
      const next = answers[0]?.body;
      const grant = await grantCollection(store).findOne({ id: `gr_${body.refresh_token.slice(3, 35)}` });
      t.match(
        grant,
        { revision: 1, accessTokens: { length: 2 } },
        'one refresh wrote, the others returned its result',
      );
      secrets.push(body.refresh_token, next.refresh_token, next.access_token);
      const later = await send(`${url}/token`, refresh(next.refresh_token)());
      t.equal(later.status, 200);
      t.same(statuses(await spread(PROCESSES, '/token', refresh(body.refresh_token))), [400, 400, 400, 400]);
      const dead = await send(`${url}/token`, refresh(later.body.refresh_token)());
      t.equal(dead.status, 400, 'reuse ends the family');
    }
  });

  await t.test('of one pushed request, one counts', async (t) => {
    for (const each of urls) {
      const request = { redirect_uri: CALLBACK, response_type: 'code', scope: 'openid' };
      const own = { client_id: client.id, client_secret: client.secret };
      const { request_uri } = (await send(`${each}/par`, form({ ...own, ...request }))).body;
      const path = `/authorize?${new URLSearchParams({ client_id: client.id, request_uri })}`;
      const answers = await spread(USES, path, () => ({ headers: signedIn }));
      t.same(statuses(answers), [302, ...Array(USES - 1).fill(400)]);
    }
  });

  await t.test('of one DPoP proof, one counts', async (t) => {
    const code = await codeFor({ scope: 'openid' });
    const key = await dpopKey(systemClock);
    const redeem = async (nonce?: string) => {
      const dpop = await key.prove({ method: 'POST', url: `${ISSUER}/token` }, { claims: { nonce } });
      return send(`${urls[1]}/token`, { ...form(redemption(client, code)), headers: { dpop } });
    };
    // The nonce of one process is valid in all of them.
    const nonce = (await redeem()).headers.get('dpop-nonce') ?? '';
    const token = (await redeem(nonce)).body.access_token;
    for (let round = 0; round < ROUNDS; round++) {
      const dpop = await key.prove({ method: 'GET', url: `${ISSUER}/userinfo`, token });
      const headers = { authorization: `DPoP ${token}`, dpop };
      const answers = await spread(USES, '/userinfo', () => ({ headers }));
      t.same(statuses(answers), [200, ...Array(USES - 1).fill(401)]);
    }
  });

  await t.test('of one assertion of a client, one counts', async (t) => {
    const key = clientKey();
    const keyed = await admin('/v1/clients', { redirect_uris: CALLBACK, jwks: { keys: [key.jwk] } });
    for (let round = 0; round < ROUNDS; round++) {
      const text = await assertion(key, { clientId: keyed.client_id, issuer: ISSUER, now: Date.now() });
      const answers = await spread(12, '/introspect', () => form({ token: 'x', ...asserted(text) }));
      t.same(statuses(answers), [200, ...Array(11).fill(401)]);
    }
  });

  await t.test('of one token for registrations, as many count as it allows', async (t) => {
    const tokens = createRegistrationTokens(registrationTokenCollection(store), {
      ...{ commit: createCommit(store), audit: SILENT_AUDIT, clock: systemClock, random: systemRandom },
    });
    const { token } = await tokens.create({ uses: 7, days: 7 }, { ip: 'cli' });
    const before = await clientCollection(store).count();
    const answers = await spread(40, '/register', () => json({ redirect_uris: [CALLBACK] }, token));
    t.equal(answers.filter(({ status }) => status === 201).length, 7);
    t.ok(answers.every(({ status }) => [201, 401, 429].includes(status)));
    t.equal(await clientCollection(store).count(), before + 7);
  });

  await t.test('concurrent sign-ups of one handle create one account', async (t) => {
    const body = { handle: 'same@example.test', password: PASSWORD };
    const answers = await spread(USES, '/v1/accounts', () => json(body));
    t.same(statuses(answers), [201, ...Array(USES - 1).fill(409)]);
  });
}

/** Of Allow, Deny and the end of a request, one counts in all processes together, and gives at most one token. */
async function decisions(
  t: Test,
  { url, urls, store, agent, secrets, spread }: Awaited<ReturnType<typeof start>>,
): Promise<void> {
  const resources = resourcesIn(store, { clock: systemClock, random: systemRandom });
  await resources.add(PAYMENTS, { ...FILES_INPUT, name: 'Payments' }, COMMAND_SOURCE);
  await resources.changeApprovals(PAYMENTS, { add: PAYMENT }, COMMAND_SOURCE);
  await resources.permissions.allow(EVERY_AGENT, PAYMENTS, {}, COMMAND_SOURCE);
  const handle = 'ada@example.test';
  await send(`${url}/v1/accounts`, json({ handle, password: PASSWORD, kind: 'human' }));
  const headers = { authorization: basic(agent.sub, agent.password) };
  const browser = new Agent({ origin: url });

  /** A request whose page is open, for so many seconds. */
  const ask = async (seconds = 60) => {
    const fields = { authorization_details: JSON.stringify([DETAILS]), login_hint: handle };
    const asked = form({ ...fields, requested_expiry: String(seconds) });
    const { body } = await send(`${url}/bc-authorize`, { ...asked, headers });
    secrets.push(body.auth_req_id);
    const end = Date.now() + seconds * 1000;
    const id = body.auth_req_id.slice(3, 35);
    let page = await browser.open(`${url}/approve/apr_${id}`);
    if (page.status === 401) page = await browser.submit(page, { handle, password: PASSWORD });
    const { fields: hidden } = page.form(`/approve/apr_${id}`);
    const decide = (decision: string) => ({
      ...form({ ...hidden, decision }),
      headers: { cookie: browser.cookieHeader('/approve'), accept: 'text/html' },
    });
    const polling = () => ({ ...form({ grant_type: CIBA_GRANT, auth_req_id: body.auth_req_id }), headers });
    return {
      decide: async (decision: string, origin: string) =>
        titleOf(await fetch(`${origin}/approve/apr_${id}`, decide(decision))),
      poll: async (origin: string) => (await send(`${origin}/token`, polling())).body,
      pollEverywhere: async () => (await spread(USES, '/token', polling)).map((answer) => answer.body),
      end,
      ended: () => waitUntil('the end of the request', () => Date.now() >= end),
      audited: async (event: string) =>
        (await auditOf(store)).filter((one) => one.event === event && one.detail?.includes(`gr_${id}`))
          .length,
    };
  };
  const titleOf = async (response: Response) => /<h1>([^<]*)/.exec(await response.text())?.[1];
  const tokensIn = (answers: { access_token?: string }[]) =>
    answers.flatMap(({ access_token: token }) => token ?? []);

  await t.test('of Allow and Deny at once, one counts', async (t) => {
    for (let round = 0; round < ROUNDS; round++) {
      const { decide, pollEverywhere, audited } = await ask();
      const shown = await Promise.all(
        Array.from({ length: USES }, (_, index) =>
          decide((index + round) % 2 ? 'allow' : 'deny', urls[index % PROCESSES] ?? url),
        ),
      );
      const [title, ...others] = new Set(shown);
      t.same(others, [], 'every page says the same');
      const isAllowed = title === 'Allowed';
      t.ok(isAllowed || title === 'Denied', String(title));
      t.equal(tokensIn(await pollEverywhere()).length, isAllowed ? 1 : 0);
      t.equal(await audited('approval.approved'), isAllowed ? 1 : 0);
      t.equal(await audited('approval.denied'), isAllowed ? 0 : 1);
    }
  });

  await t.test('the first decision stays, in another process as well', async (t) => {
    for (const [first, then, title] of [
      ['allow', 'deny', 'Allowed'],
      ['deny', 'allow', 'Denied'],
    ] as const) {
      const { decide, pollEverywhere } = await ask();
      t.equal(await decide(first, url), title);
      t.equal(await decide(then, urls[1] ?? url), title);
      t.equal(tokensIn(await pollEverywhere()).length, first === 'allow' ? 1 : 0);
    }
  });

  await t.test('no decision counts after the end, and no token comes after it', async (t) => {
    const early = await ask(2);
    t.equal(await early.decide('allow', url), 'Allowed');
    const late = await ask(1);
    await late.ended();
    for (const decision of ['allow', 'deny'])
      t.equal(await late.decide(decision, urls[1] ?? url), 'Nothing to decide');
    await early.ended();
    for (const { pollEverywhere } of [early, late])
      t.ok((await pollEverywhere()).every(({ error }) => error === 'expired_token'));
    t.equal(await late.audited('approval.approved'), 0);
  });

  await t.test('of Allow and the end at once, one counts', async (t) => {
    for (let round = 0; round < ROUNDS; round++) {
      const { decide, poll, pollEverywhere, audited, end } = await ask(1);
      const attempts = urls.map(async (origin) => {
        const begin = end - 10 * round;
        await waitUntil('the end of the request', () => Date.now() >= begin, { everyTurn: true });
        for (;;) {
          await decide('allow', origin);
          const answer = await poll(origin);
          if (!['authorization_pending', 'slow_down'].includes(answer.error)) return answer;
        }
      });
      const answers = await Promise.all(attempts);
      const count = tokensIn([...answers, ...(await pollEverywhere())]).length;
      t.ok(count <= 1);
      t.equal(await audited('approval.used'), count);
      t.ok((await audited('approval.approved')) <= 1);
      t.same(tokensIn(await pollEverywhere()), [], 'afterwards there is none');
    }
  });
}

await onEngines((engine, fresh) => {
  t.test(`four processes share one store of ${engine}`, async (t) => {
    const started = await start(t, fresh(t));
    const { programs, url, client, secrets, codeFor } = started;
    await t.test('every race has one winner', (t) => races(t, started));
    await t.test('a person decides once', (t) => decisions(t, started));

    await t.test('logs contain no secret and no query, whatever fails', async (t) => {
      const canary = 'canary-5QmXv8';
      const code = await codeFor();
      const { body } = await send(`${url}/token`, form(redemption(client, code)));
      secrets.push(code, body.access_token, body.id_token, canary);
      const page = await fetch(
        url + authorizePath(client, { state: canary, nonce: canary, login_hint: canary }),
      );
      const interaction = /name="interaction" value="([^"]+)/.exec(await page.text())?.[1] as string;
      const cookie = page.headers.getSetCookie()[0]?.split(';', 1)[0] as string;
      secrets.push(interaction, cookie.split('=')[1] as string);
      const login = new URLSearchParams({ interaction, handle: 'same@example.test', password: canary });
      await send(`${url}/authorize/login`, { method: 'POST', headers: { cookie }, body: login });
      await send(`${url}/authorize/login?${login}`, { method: 'POST', headers: { cookie }, body: '{' });
      await send(`${url}/token?${redemption(client, code)}`, form(redemption(client, canary)));
      await send(`${url}/v1/accounts`, json({ handle: `${canary}:`, password: canary }));
      await send(`${url}/v1/agents`, json({}, canary));
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
      for (const program of programs)
        t.equal(await program.terminate(), null, 'it has no handler of its own');
      const log = programs.flatMap(({ lines }) => lines).join('\n');
      t.match(log, /"route":"\/token"/, 'something was logged');
      for (const secret of secrets) t.notOk(log.includes(secret), secret);
      t.notMatch(log, /client_id=|redirect_uri=|agent@example|"level":50/);
    });
  });
});
