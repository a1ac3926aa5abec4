import { createHash } from 'node:crypto';
import { createRemoteJWKSet, customFetch, jwtVerify } from 'jose';
import * as oidc from 'openid-client';
import t, { type Test } from 'tap';
import { basic } from '../../kit/app.js';
import { type FakeClock, fakeClock } from '../../kit/clock.js';
import { fetchOf } from '../../kit/fetch.js';
import {
  authorizePath,
  CALLBACK,
  claimsOf,
  codeIn,
  type IdpApp,
  ISSUER,
  idpApp,
  type RegisteredClient,
  redemption,
} from '../../kit/idp.js';
import { temporaryFolder } from '../../kit/tmp.js';

/**
 * Key rotation under load: servers behind a load balancer are replaced one by one, as docs/idp/keys.md describes,
 * while applications verify their tokens as usual. All of them use the time of the test.
 */

const ROTATIONS = Number(process.env['ROTATIONS'] ?? 1);
const SECOND = 1000;
const HOUR = 3600 * SECOND;
/** How long caches keep the keys, and how long a client does not refetch them after an unknown key. */
const PUBLISHED_AHEAD = (300 + 60) * SECOND;

const seedOf = (number: number): string => createHash('sha256').update(`seed ${number}`).digest('hex');

interface Seeds {
  ed25519Seed: string;
  ed25519SeedNext?: string;
  ed25519SeedPrevious?: string;
}

type Fetch = (url: string, init?: RequestInit) => Promise<Response>;

/** Servers on one store; requests alternate between them. */
function fleet(t: Test, clock: FakeClock) {
  const folder = temporaryFolder(t);
  const serving: { idp: IdpApp; busy: Set<Promise<Response>> }[] = [];
  let turn = 0;

  const start = async (seeds: Seeds): Promise<IdpApp> => {
    const idp = await idpApp(t, { folder, clock, ...seeds });
    serving.push({ idp, busy: new Set() });
    return idp;
  };
  /** Starts a new server in place of the oldest, which completes its open requests. */
  const replace = async (seeds: Seeds) => {
    await start(seeds);
    const old = serving.shift();
    await Promise.all(old?.busy ?? []);
    await old?.idp.server.stop();
  };
  const send: Fetch = async (url, init) => {
    const chosen = serving[turn++ % serving.length];
    if (!chosen) throw new Error('no server is running');
    const answer = fetchOf(chosen.idp)(url, init);
    chosen.busy.add(answer);
    return answer.finally(() => chosen.busy.delete(answer));
  };
  return { start, replace, send };
}

/** Caches answers for their max-age, like browsers and proxies. */
function withCache(send: Fetch, clock: FakeClock): Fetch {
  const kept = new Map<string, { text: string; until: number }>();
  return async (url, init) => {
    const known = kept.get(url);
    if (known && clock.now() < known.until) return Response.json(JSON.parse(known.text));
    const response = await send(url, init);
    const seconds = /max-age=(\d+)/.exec(response.headers.get('cache-control') ?? '')?.[1];
    if (seconds !== undefined) {
      kept.set(url, { text: await response.clone().text(), until: clock.now() + Number(seconds) * SECOND });
    }
    return response;
  };
}

interface Application {
  client: RegisteredClient;
  /** Sends an authorization request as the agent and returns the redirect. */
  authorize(url: string): Promise<string>;
  send: Fetch;
  clock: FakeClock;
}

/** One sign-in. Rejects when the application refuses a token. */
type Visit = () => Promise<void>;

/** Verifies new tokens with jose, and earlier ones again until they expire. */
function joseApplication({ client, authorize, send, clock }: Application): Visit {
  const keys = createRemoteJWKSet(new URL(`${ISSUER}/.well-known/jwks.json`), {
    [customFetch]: (url, { method, signal }) => send(url, { method, signal }),
  });
  let kept: string[] = [];
  return async () => {
    const code = codeIn(await authorize(ISSUER + authorizePath(client)));
    const response = await send(`${ISSUER}/token`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: redemption(client, code),
    });
    const tokens = (await response.json()) as { id_token: string };
    kept = [...kept.slice(-20), tokens.id_token].filter(
      (idToken) => claimsOf(idToken).exp * SECOND > clock.now(),
    );
    const options = { issuer: ISSUER, audience: client.id, currentDate: new Date(clock.now()) };
    for (const idToken of kept) await jwtVerify(idToken, keys, options);
  };
}

/** Signs in with openid-client, which checks the signature, and refreshes the tokens. */
async function openidApplication({ client, authorize, send }: Application): Promise<Visit> {
  const config = await oidc.discovery(
    new URL(ISSUER),
    client.id,
    undefined,
    oidc.ClientSecretBasic(client.secret ?? ''),
    {
      [oidc.customFetch]: (url, { method, headers, body }) =>
        send(url, {
          method,
          headers,
          ...(body != null && { body: body as NonNullable<RequestInit['body']> }),
        }),
      execute: [oidc.enableNonRepudiationChecks],
    },
  );
  return async () => {
    const expectedState = oidc.randomState();
    const request = { redirect_uri: CALLBACK, scope: 'openid offline_access', state: expectedState };
    const answer = await authorize(oidc.buildAuthorizationUrl(config, request).href);
    const checks = { expectedState, idTokenExpected: true };
    const tokens = await oidc.authorizationCodeGrant(config, new URL(answer), checks);
    await oidc.refreshTokenGrant(config, tokens.refresh_token ?? '');
  };
}

/** Several applications of both kinds, and their failures. */
async function setUp(t: Test, { servers }: { servers: number }) {
  const clock = fakeClock();
  const { now } = Date;
  // The client libraries use only Date.now.
  Date.now = clock.now;
  t.teardown(() => {
    Date.now = now;
  });
  const { start, replace, send } = fleet(t, clock);
  const first = await start({ ed25519Seed: seedOf(0) });
  for (let count = 1; count < servers; count++) await start({ ed25519Seed: seedOf(0) });

  const { handle, password } = await first.mintAgent();
  const headers = { authorization: basic(handle, password) };
  const authorize = async (url: string) => (await send(url, { headers })).headers.get('location') ?? '';
  const visits: Visit[] = [];
  for (const open of [joseApplication, openidApplication, joseApplication, openidApplication])
    visits.push(
      await open({ client: await first.createClient(), authorize, send: withCache(send, clock), clock }),
    );

  let done = 0;
  const failures: string[] = [];
  const visit = async (one: Visit): Promise<void> => {
    await one().then(
      () => done++,
      (error: Error) => failures.push(`${error.name}: ${error.message}`),
    );
  };
  const visitAll = () => Promise.all(visits.map(visit));
  return {
    failures,
    visited: () => done,
    /** Replaces all servers one by one with these keys, while the applications continue. */
    async restart(seeds: Seeds) {
      let isOver = false;
      const loops = visits.map(async (one) => {
        while (!isOver) await visit(one);
      });
      try {
        for (let count = 0; count < servers; count++) await replace(seeds);
      } finally {
        isOver = true;
        await Promise.all(loops);
      }
      await visitAll();
    },
    /** Advances the clock in steps, with a visit of every application at each. */
    async pass(milliseconds: number) {
      const step = milliseconds > PUBLISHED_AHEAD ? 599 * SECOND : 61 * SECOND;
      for (let left = milliseconds; left > 0; left -= step) {
        clock.advance(Math.min(step, left));
        await visitAll();
      }
    },
    visitAll,
  };
}

t.test(`key rotations under load (${ROTATIONS}) fail no request`, async (t) => {
  const { failures, visited, restart, pass, visitAll } = await setUp(t, { servers: 2 });
  await visitAll();
  for (let key = 0; key < ROTATIONS; key++) {
    await restart({ ed25519Seed: seedOf(key), ed25519SeedNext: seedOf(key + 1) });
    await pass(PUBLISHED_AHEAD);
    await restart({ ed25519Seed: seedOf(key + 1), ed25519SeedPrevious: seedOf(key) });
    await pass(PUBLISHED_AHEAD);
    await pass(HOUR - PUBLISHED_AHEAD);
  }
  t.same([...new Set(failures)], []);
  t.comment(`${visited()} sign-ins`);
  t.ok(visited() > ROTATIONS * 50);
});

// Proof that the test above detects mistakes; only in the long run.
const SHORT = ROTATIONS === 1 && 'npm run test:rotations has it';
t.test('rotation steps in another order, or too fast, break applications', { skip: SHORT }, async (t) => {
  const { failures, restart, pass, visitAll } = await setUp(t, { servers: 1 });
  await visitAll();
  const breaks = async (what: string) => {
    t.not(failures.length, 0, what);
    t.match(failures[0], /no applicable key/i);
    await pass(HOUR);
    failures.length = 0;
    await visitAll();
    t.same(failures, [], 'an hour later all applications work again');
  };

  await restart({ ed25519Seed: seedOf(1), ed25519SeedPrevious: seedOf(0) });
  await breaks('a key signs that was never published');

  await restart({ ed25519Seed: seedOf(1), ed25519SeedNext: seedOf(2) });
  await pass(299 * SECOND);
  t.same(failures, []);
  await restart({ ed25519Seed: seedOf(2), ed25519SeedPrevious: seedOf(1) });
  await breaks('a key signs before the last cache has looked again');

  await restart({ ed25519Seed: seedOf(2), ed25519SeedNext: seedOf(3) });
  await pass(PUBLISHED_AHEAD);
  await restart({ ed25519Seed: seedOf(3) });
  await pass(PUBLISHED_AHEAD);
  await breaks('the old key is gone while its tokens live');
});
