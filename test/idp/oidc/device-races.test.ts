import t, { type Test } from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { deviceRequestCollection } from '../../../src/idp/oidc/device/store.js';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import { type Answer, PASSWORD, parseJson } from '../../kit/app.js';
import { openDevicePage, polling } from '../../kit/device.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { ADMIN_TOKEN, CALLBACK, idpOptions } from '../../kit/idp.js';
import { compiled, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { codes, holds, insist } from '../../saas/auth/explored-service.js';
import { approved, CLIENT, DEVICE_CODE, decide, flowOn, ownerOf, poll, setup } from './explored-devices.js';

/** Decisions and polls beside each other, killed at any call, and in several processes. */

const PROCESSES = 4;
const POLLS = 50;

const resultOf = (result: PromiseSettledResult<unknown> | undefined) =>
  result?.status === 'fulfilled' ? result.value : undefined;

t.test('two polls of an approved code: in every order and with a crash, one gets valid tokens', async (t) => {
  const check: Scenario['check'] = async (store, results) => {
    const given = results.flatMap((result) => (resultOf(result) as { access_token: string }) ?? []);
    insist(given.length <= 1, 'tokens twice');
    const isCrashed = results.includes(undefined);
    insist(isCrashed || given.length === 1, 'no tokens');
    for (const { access_token: token } of given) await flowOn(store, 'check').tokens.userinfo(token);
    // Without tokens, the crashed poll has either used the code, or the next poll gets them.
    const later = await poll('later')(store).catch((error: { code: string }) => error.code);
    insist(given.length === 0 || later === 'invalid_grant', 'tokens for a used code');
    insist(
      codes(results.filter((one) => one !== undefined)).every((one) =>
        ['done', 'invalid_grant'].includes(one),
      ),
      codes(results).join(),
    );
  };
  holds(t, await explore({ setup: approved, actors: [poll('one'), poll('two')], crash: true, check }));
});

t.test('a poll whose writes get lost in an outage gets tokens with its repetition', async (t) => {
  const actor = async (store: Store) => {
    const { flow } = flowOn(store, 'one');
    for (let times = 0; ; times++) {
      try {
        return await flow.poll(CLIENT, { deviceCode: DEVICE_CODE, resources: [] });
      } catch (error) {
        if ((error as { code?: string }).code !== 'STORE_UNAVAILABLE' && times > 4) throw error;
        if ((error as { code?: string }).code === 'invalid_grant') throw error;
      }
    }
  };
  const check: Scenario['check'] = async (_store, [result]) => {
    insist(result?.status === 'fulfilled', String(result?.status === 'rejected' && result.reason));
  };
  holds(t, await explore({ setup: approved, actors: [actor], losses: 2, check }));
});

t.test('approvals and a denial: in every order and with a crash, one decision holds', async (t) => {
  const actors = [decide('approve', 'u_ada'), decide('approve', 'u_eve'), decide('deny', 'u_bob')];
  const check: Scenario['check'] = async (store, results) => {
    const [ada, eve, bob] = results.map((result) => resultOf(result) === true);
    insist([ada, eve, bob].filter(Boolean).length <= 1, 'two decisions');
    insist(results.includes(undefined) || ada || eve || bob || false, 'no decision');
    const outcome = await poll('later')(store).then(
      () => 'tokens',
      (error: { code: string }) => error.code,
    );
    const owner = await ownerOf(store);
    if (ada || eve)
      insist(outcome === 'tokens' && owner === (ada ? 'u_ada' : 'u_eve'), `${owner} ${outcome}`);
    if (bob) insist(outcome === 'access_denied' && owner === undefined, outcome);
  };
  holds(t, await explore({ setup, actors, crash: true, check }));
});

t.test('a poll beside an approval and a denial never gets the tokens of a denied request', async (t) => {
  const actors = [poll('one'), decide('approve', 'u_ada'), decide('deny', 'u_bob')];
  const check: Scenario['check'] = async (store, [polled, ada, bob]) => {
    if (resultOf(bob) === true) insist(resultOf(polled) === undefined, 'tokens after a denial');
    if (resultOf(polled))
      insist((await ownerOf(store)) === 'u_ada' && resultOf(ada) !== false, 'of somebody else');
  };
  holds(t, await explore({ setup, actors, crash: true, check }));
});

const post = async (url: string, form: string): Promise<Pick<Answer, 'status' | 'body'>> => {
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const response = await fetch(url, { method: 'POST', headers, body: form });
  return { status: response.status, body: parseJson(await response.text()) };
};

function forEngine(engine: string, fresh: (t: Test) => string): void {
  t.test(`${engine}, ${PROCESSES} processes: ${POLLS} polls of one code get tokens once`, async (t) => {
    const databaseUri = fresh(t);
    const options = { ...idpOptions(temporaryFolder(t)), databaseUri, deviceFlow: true, limits: false };
    // The sign-in of the test follows redirects to the address of each process.
    const args = [JSON.stringify({ ...options, publicUrl: undefined, logLevel: 'info' })];
    const start = () => startProgram(t, compiled('test/kit/idp-server.js'), { args }).url();
    const first = await start();
    const urls = [first, ...(await Promise.all(Array.from({ length: PROCESSES - 1 }, start)))];
    const json = async (path: string, body: object): Promise<Answer['body']> => {
      const headers = { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_TOKEN}` };
      return parseJson(
        await (await fetch(first + path, { method: 'POST', headers, body: JSON.stringify(body) })).text(),
      );
    };
    const made = await json('/v1/clients', { redirect_uris: CALLBACK, public: true });
    const client = { id: made.client_id, redirectUri: CALLBACK };
    const store = await openStore(databaseUri);
    t.teardown(() => store.close());
    await clientCollection(store).updateOne({ id: client.id }, { set: { device: true } });
    const human = { handle: 'ada@example.test', password: PASSWORD };
    await json('/v1/accounts', { ...human, kind: 'human' });
    const { browser, page } = await openDevicePage(first, human);
    const begin = async () => (await post(`${first}/device_authorization`, `client_id=${client.id}`)).body;
    const spread = <T>(call: (url: string, index: number) => Promise<T>) =>
      Promise.all(
        Array.from({ length: POLLS }, (_, index) => call(urls[index % PROCESSES] as string, index)),
      );

    for (let round = 0; round < 3; round++) {
      const request = await begin();
      const shown = await browser.send(page, { user_code: request.user_code });
      await browser.send(shown, { decision: 'allow' });
      const answers = await spread((url) => post(`${url}/token`, polling(client, request.device_code)));
      const winners = answers.filter(({ status }) => status === 200);
      t.equal(winners.length, 1);
      t.equal(answers.filter(({ body }) => body.error === 'invalid_grant').length, POLLS - 1);
      const headers = { authorization: `Bearer ${winners[0]?.body.access_token}` };
      const known = await Promise.all(
        urls.map(async (url) => (await fetch(`${url}/userinfo`, { headers })).status),
      );
      t.same(known, [200, 200, 200, 200], 'and they stay valid');
    }

    const request = await begin();
    const shown = await browser.send(page, { user_code: request.user_code });
    const decided = await spread(async (_url, index) => {
      const decision = index === POLLS / 2 ? 'deny' : 'allow';
      return { decision, status: (await browser.send(shown, { decision })).status };
    });
    const { body } = await post(`${urls[1]}/token`, polling(client, request.device_code));
    const isDenied = decided.some(({ decision, status }) => decision === 'deny' && status === 200);
    t.equal(isDenied ? body.error : body.token_type, isDenied ? 'access_denied' : 'Bearer');
    const others = decided.filter(({ decision }) => decision === (isDenied ? 'allow' : 'deny'));
    t.same(new Set(others.map(({ status }) => status)), new Set([404]), 'only one decision is confirmed');

    const slow = await begin();
    const pending = await spread((url) => post(`${url}/token`, polling(client, slow.device_code)));
    const early = pending.filter(({ body: { error } }) => error === 'slow_down').length;
    t.equal(pending.filter(({ body: { error } }) => error === 'authorization_pending').length, 1);
    t.equal(early, POLLS - 1);
    const id = `dev_${slow.device_code.slice(3, 35)}`;
    t.equal(
      (await deviceRequestCollection(store).findOne({ id }))?.interval,
      5 + 5 * early,
      'each of them counts',
    );
  });
}

forEngine('SQLite', (t) => `sqlite:${temporaryFolder(t)}/devices.db`);
await onMongod((server) => forEngine('MongoDB', (t) => server.fresh(t)));
