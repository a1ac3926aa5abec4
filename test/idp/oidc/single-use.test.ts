import t, { type Test } from 'tap';
import { systemClock } from '../../../src/core/kernel/clock.js';
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import { openStore } from '../../../src/core/storage/open.js';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { registrationTokenCollection } from '../../../src/idp/registration/store.js';
import { createRegistrationTokens } from '../../../src/idp/registration/tokens.js';
import { onMongod } from '../../core/storage/mongod.js';
import { basic } from '../../kit/app.js';
import { asserted, assertion, clientKey } from '../../kit/client-keys.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  CALLBACK,
  codeIn,
  ISSUER,
  idpOptions,
  redemption,
} from '../../kit/idp.js';
import { ON_THE_HOST } from '../../kit/operator.js';
import { compiled, startProgram } from '../../kit/process.js';
import { FILES, FILES_INPUT, resourcesIn } from '../../kit/resources.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { dpopKey } from '../../kit/token-issuer.js';

/** What may be used once is used once in four processes together. */

const ROUNDS = 4;
const USES = 50;

/** Four processes on one store, and a client and an agent in it. */
async function start(t: Test, databaseUri: string) {
  const options = {
    ...idpOptions(temporaryFolder(t)),
    databaseUri,
    logLevel: 'info',
    clientRegistration: true,
  };
  const programs = Array.from({ length: 4 }, () =>
    startProgram(t, compiled('test/kit/idp-server.js'), { args: [JSON.stringify(options)] }),
  );
  const urls = await Promise.all(programs.map((program) => program.url()));
  const store = await openStore(databaseUri);
  t.teardown(() => store.close());
  const admin = async (path: string, body: object) => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_TOKEN}` };
    const made = await fetch(urls[0] + path, { method: 'POST', headers, body: JSON.stringify(body) });
    return (await made.json()) as Record<string, string>;
  };
  const { client_id: id = '', client_secret: secret = '' } = await admin('/v1/clients', {
    redirect_uris: CALLBACK,
  });
  const { handle = '', password = '' } = await admin('/v1/agents', { handle: 'racer@example.test' });
  return {
    store,
    admin,
    urls,
    client: { id, secret, redirectUri: CALLBACK },
    signedIn: { authorization: basic(handle, password) },
    /** The statuses of concurrent requests, to each process in turn. */
    race: async (path: string, init: () => RequestInit, count = USES) => {
      const send = async (index: number) =>
        (await fetch(urls[index % urls.length] + path, { redirect: 'manual', ...init() })).status;
      return (await Promise.all(Array.from({ length: count }, (_, index) => send(index)))).sort();
    },
  };
}

function racesOn(engine: string, fresh: (t: Test) => string): void {
  t.test(`${engine}: of concurrent uses in four processes`, async (t) => {
    const { store, admin, urls, client, signedIn, race } = await start(t, fresh(t));

    await t.test('of one pushed request, one counts', async (t) => {
      for (let round = 0; round < ROUNDS; round++) {
        const pushed = await fetch(`${urls[round]}/par`, {
          method: 'POST',
          body: new URLSearchParams({
            ...{ client_id: client.id, client_secret: client.secret, redirect_uri: CALLBACK },
            ...{ response_type: 'code', scope: 'openid', state: 'af0ifjsldkj' },
          }),
        });
        const { request_uri = '' } = (await pushed.json()) as { request_uri?: string };
        const path = `/authorize?${new URLSearchParams({ client_id: client.id, request_uri })}`;
        t.same(await race(path, () => ({ headers: signedIn })), [302, ...Array(USES - 1).fill(400)]);
      }
    });

    await t.test('of one DPoP proof, one counts', async (t) => {
      await resourcesIn(store, { clock: systemClock, random: systemRandom }).add(
        FILES,
        FILES_INPUT,
        ON_THE_HOST,
      );
      const answer = await fetch(urls[0] + authorizePath(client, { scope: 'openid' }), {
        headers: signedIn,
        redirect: 'manual',
      });
      const code = codeIn(answer.headers.get('location') ?? undefined);
      const key = await dpopKey(systemClock);
      const redeem = async (nonce?: string) =>
        fetch(`${urls[1]}/token`, {
          method: 'POST',
          body: new URLSearchParams(redemption(client, code)),
          headers: {
            dpop: await key.prove({ method: 'POST', url: `${ISSUER}/token` }, { claims: { nonce } }),
          },
        });
      // The nonce of one process is valid in all of them.
      const nonce = (await redeem()).headers.get('dpop-nonce') ?? '';
      const { access_token: token } = (await (await redeem(nonce)).json()) as { access_token: string };
      for (let round = 0; round < ROUNDS; round++) {
        const dpop = await key.prove({ method: 'GET', url: `${ISSUER}/userinfo`, token });
        const headers = { authorization: `DPoP ${token}`, dpop };
        t.same(await race('/userinfo', () => ({ headers })), [200, ...Array(USES - 1).fill(401)]);
      }
    });

    await t.test('of one assertion of a client, one counts', async (t) => {
      const key = clientKey();
      const { client_id: clientId = '' } = await admin('/v1/clients', {
        redirect_uris: CALLBACK,
        jwks: { keys: [key.jwk] },
      });
      for (let round = 0; round < ROUNDS; round++) {
        const text = await assertion(key, { clientId, issuer: ISSUER, now: Date.now() });
        const use = () => ({
          method: 'POST',
          body: new URLSearchParams({ token: 'x', ...asserted(text) }),
        });
        t.same(await race('/introspect', use, 12), [200, ...Array(11).fill(401)]);
      }
    });

    await t.test('of one token for registrations, as many count as it allows', async (t) => {
      const audit = { record: async () => undefined };
      const tokens = createRegistrationTokens(registrationTokenCollection(store), {
        ...{ audit, clock: systemClock, random: systemRandom },
      });
      const { token } = await tokens.create({ uses: 7, days: 7 }, { ip: 'cli' });
      const before = await clientCollection(store).count();
      const register = () => ({
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
        body: JSON.stringify({ redirect_uris: [CALLBACK] }),
      });
      const statuses = await race('/register', register, 40);
      t.equal(statuses.filter((status) => status === 201).length, 7);
      t.ok(statuses.every((status) => [201, 401, 429].includes(status)));
      t.equal(await clientCollection(store).count(), before + 7);
    });
  });
}

racesOn('SQLite', (t) => `sqlite:${temporaryFolder(t)}/idp.db`);
await onMongod(({ fresh }) => racesOn('MongoDB', fresh));
