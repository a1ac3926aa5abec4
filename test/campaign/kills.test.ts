/**
 * kill -9 of both products under load, with clients that repeat unanswered requests. Every acknowledged change is
 * stored, nothing is done twice, and no session is lost. The engines alone: `test/core/storage/contract/kills.ts`.
 */
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openStore } from '../../src/core/storage/open.js';
import { userCollection } from '../../src/saas/auth/store.js';
import { webhookEventCollection } from '../../src/saas/billing/store.js';
import { onMongod } from '../core/storage/mongod.js';
import { basic, PASSWORD, SECRETS, testOptions } from '../kit/app.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  CALLBACK,
  codeIn,
  idpOptions,
  redemption,
  refreshing,
} from '../kit/idp.js';
import { json, oneProcess, underKills, workers } from '../kit/kills.js';
import { signWebhook } from '../kit/sign-webhook.js';
import { temporaryFolder } from '../kit/tmp.js';

function saas(t: Test, databaseUri = `sqlite:${join(temporaryFolder(t), 'saas.db')}`, withWorkers = false) {
  const what = withWorkers ? 'a server with workers' : 'saas-backend';
  return t.test(`${what} loses no acknowledged change to kill -9`, async (t) => {
    const options = { ...testOptions(temporaryFolder(t)), databaseUri };
    const victim = withWorkers
      ? await workers(t, databaseUri)
      : await oneProcess(t, 'test/kit/saas-server.js', options);
    const people = new Map<string, string>();
    const events = new Set<string>();
    await underKills(t, victim, async (killable, lane) => {
      let number = 0;
      while (!killable.isOver()) {
        const email = `p${lane}-${number++}@example.test`;
        const registered = await killable.ask(json('/api/auth/register', { email, password: PASSWORD }));
        // A repeated request may have succeeded before.
        if (registered.status === 409 && registered.sent > 1) {
          people.set(email, '');
        } else {
          t.equal(registered.status, 201, `register ${email}`);
          people.set(email, registered.body.data.user.id);
        }
        killable.count();
        const login = await killable.ask(json('/api/auth/login', { email, password: PASSWORD }));
        t.equal(login.status, 200, 'registered users can sign in');
        let { refreshToken, accessToken } = login.body.data;
        for (let rotation = 0; rotation < 4; rotation++) {
          const rotated = await killable.ask(json('/api/auth/refresh', { refreshToken }));
          t.equal(rotated.status, 200, 'a rotation whose answer was lost is answered again');
          if (rotated.status !== 200) return;
          ({ refreshToken, accessToken } = rotated.body.data);
          killable.count();
        }
        const id = `evt_${lane}_${number}`;
        const payload = JSON.stringify({
          id,
          object: 'event',
          type: 'customer.subscription.updated',
          created: Math.floor(Date.now() / 1000),
          data: {
            object: { id: `sub_${lane}`, object: 'subscription', customer: `cus_${lane}`, status: 'active' },
          },
        });
        const delivered = await killable.ask({
          ...json('/api/billing/webhook', undefined, {
            'payment-signature': signWebhook(payload, SECRETS.paymentWebhookSecret, Date.now()),
          }),
          body: payload,
        });
        // 409: the killed process holds the lease for half a minute, and the provider delivers the event again.
        t.ok(delivered.status === 200 || (delivered.status === 409 && delivered.sent > 1), 'the webhook');
        if (delivered.status === 200) events.add(id);
        killable.count();
        const out = await killable.ask(
          json('/api/auth/logout', {}, { authorization: `Bearer ${accessToken}` }),
        );
        t.ok(out.status < 300, 'logout');
        const late = await killable.ask(json('/api/auth/refresh', { refreshToken }));
        t.equal(late.status, 401, 'who was signed out stays so');
      }
    });
    const store = await openStore(options.databaseUri);
    t.teardown(() => store.close());
    const users = userCollection(store);
    t.equal(await users.count(), people.size, 'each once, and no others');
    for (const [email, id] of people) {
      t.match(await users.findOne({ email }), { ...(id && { id }), email });
    }
    const stored = webhookEventCollection(store);
    for (const id of events) t.type((await stored.findOne({ id }))?.outcome, 'string');
  });
}

function idp(t: Test, databaseUri?: string) {
  return t.test('idp loses no acknowledged change to kill -9', async (t) => {
    const options = { ...idpOptions(temporaryFolder(t)), ...(databaseUri && { databaseUri }) };
    const operator = { authorization: `Bearer ${ADMIN_TOKEN}` };
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    const redeemed: { body: string }[] = [];
    const victim = await oneProcess(t, 'test/kit/idp-server.js', options);
    const killable = await underKills(t, victim, async (killable, lane) => {
      const made = await killable.ask(
        json('/v1/clients', { name: 'App', redirect_uris: [CALLBACK] }, operator),
      );
      const client = { id: made.body.client_id, secret: made.body.client_secret, redirectUri: CALLBACK };
      for (let number = 0; !killable.isOver(); number++) {
        const handle = `a${lane}-${number}@agents.example.test`;
        const minted = await killable.ask(json('/v1/agents', { handle }, operator));
        killable.count();
        // Its password was in the lost answer.
        if (minted.status === 409 && minted.sent > 1) continue;
        t.equal(minted.status, 201, `mint ${handle}`);
        const path = authorizePath(client, { scope: 'openid offline_access', prompt: 'consent' });
        const headers = { authorization: basic(handle, minted.body.password) };
        const code = codeIn((await killable.ask({ method: 'GET', path, headers })).location);
        killable.count();
        const body = redemption(client, code);
        const bought = await killable.ask({ method: 'POST', path: '/token', headers: form, body });
        // A code whose answer was lost is used; the client begins again.
        if (bought.status === 400 && bought.sent > 1) continue;
        t.equal(bought.status, 200, 'redeem');
        if (bought.status !== 200) return;
        redeemed.push({ body });
        killable.count();
        let { refresh_token: refreshToken, access_token: accessToken } = bought.body;
        for (let rotation = 0; rotation < 4; rotation++) {
          const refresh = {
            method: 'POST',
            path: '/token',
            headers: form,
            body: refreshing(client, refreshToken),
          };
          const rotated = await killable.ask(refresh);
          t.equal(rotated.status, 200, 'a rotation whose answer was lost is answered again');
          if (rotated.status !== 200) return;
          ({ refresh_token: refreshToken, access_token: accessToken } = rotated.body);
          killable.count();
        }
        const bearer = { authorization: `Bearer ${accessToken}` };
        t.equal((await killable.ask({ method: 'GET', path: '/userinfo', headers: bearer })).status, 200);
      }
    });
    t.ok(redeemed.length > 0);
    for (const { body } of redeemed) {
      const again = await killable.ask({ method: 'POST', path: '/token', headers: form, body });
      t.equal(again.status, 400, 'a code is redeemed once');
    }
  });
}

saas(t);
saas(t, undefined, true);
idp(t);
await onMongod((server) => {
  t.test('on MongoDB, both programs lose no acknowledged change to kill -9', async (t) => {
    await saas(t, server.fresh(t));
    await saas(t, server.fresh(t), true);
    await idp(t, server.fresh(t));
  });
});
