import t from 'tap';
import { deliveryCollection } from '../../../src/saas/webhooks/store.js';
import { PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { waitUntil } from '../../kit/wait.js';
import { connected, KEY, laboratory, receiver } from './kit.js';

/** What deliveries contain about a person, in the export and after the account is deleted. */

const ADA = { userId: 'usr_ada', user: { id: 'usr_ada', email: 'ada@example.test', name: 'Ada' } };
const EVE = { userId: 'usr_eve', user: { id: 'usr_eve', email: 'eve@example.test', name: 'Eve' } };

t.test('deliveries of a deleted account lose what is personal, and are sent nevertheless', async (t) => {
  const [up, down] = [await receiver(t), await receiver(t)];
  down.state.answer = ({ body }, response) => response.writeHead(500).end(body);
  const lab = await laboratory(t);
  await lab.add(up.url);
  await lab.add(down.url);
  const { personalData } = lab.module;
  for (const person of [ADA, EVE]) await lab.emit('user.registered', person);
  await lab.emit('invoice.paid', { userId: 'usr_ada', invoiceId: 'in_1', amount: 900 });
  await lab.send();
  const of = async (userId: string) =>
    (await lab.deliveries.page({ where: { userId }, sort: 'createdAt', limit: 100 })).items;
  t.equal((await of('usr_ada')).length, 4);
  for (let repetition = 0; repetition < 2; repetition++) await personalData.forget('usr_ada');
  const left = await of('usr_ada');
  const shown = left.map(({ event, status }) => `${event} ${status}`).sort();
  t.same(shown, ['invoice.paid pending', 'user.registered pending'], 'what has ended is removed');
  t.notMatch(JSON.stringify(left), /ada@|Ada/);
  t.equal((await of('usr_eve')).length, 2);
  t.match(JSON.stringify(await of('usr_eve')), /eve@/);
  down.state.answer = undefined;
  down.received.length = 0;
  lab.clock.advance(10_000);
  await lab.send();
  const sent = down.received.map(({ event }) => event.data).filter(({ userId }) => userId === 'usr_ada');
  t.same(
    sent.map(({ id: _, ...rest }) => rest).sort((a, b) => Object.keys(a).length - Object.keys(b).length),
    [{ userId: 'usr_ada' }, { userId: 'usr_ada', invoiceId: 'in_1', amount: 900 }],
  );
});

t.test('an attempt that is under way when the account is deleted leaves nothing personal', async (t) => {
  const { app, lab } = await connected(t);
  for (const status of [204, 500]) {
    app.state.answer = async ({ body }, response) => {
      await lab.module.personalData.forget('usr_ada');
      response.writeHead(status === 204 ? 200 : status).end(body);
    };
    await lab.emit('user.registered', { ...ADA, id: `evt_${status}` });
    await lab.send();
    const { items } = await lab.deliveries.page({ sort: 'createdAt', limit: 10 });
    t.equal(items.length, 1, 'of the earlier round nothing is left');
    t.notMatch(JSON.stringify(items), /ada@|Ada/, String(status));
  }
});

t.test('the export contains deliveries; the deletion of the account removes what they contain', async (t) => {
  const hook = await receiver(t);
  const app = await saasApp(t, { webhooks: true, settingsEncryptionKey: KEY });
  await app.admin('POST', '/admin/api/endpoints/create', { url: `${hook.url}/a-secret-path` });
  const ada = await app.signUp();
  const other = await app.signUp();
  await waitUntil('both registrations', () => hook.received.length === 2);
  const exported = await app.request('GET', '/api/user/export', { token: ada.accessToken });
  t.match(exported.body.data.webhookDeliveries, [
    {
      event: 'user.registered',
      recipient: new URL(hook.url).host,
      createdAt: String,
      payload: { type: 'user.registered', data: { userId: ada.id, user: { email: ada.email } } },
    },
  ]);
  t.notMatch(exported.text, 'a-secret-path');
  t.notMatch(exported.text, other.email);
  const closed = { body: { password: PASSWORD }, token: ada.accessToken };
  t.equal((await app.request('POST', '/api/user/delete', closed)).status, 200);
  await waitUntil('the deletion', () => hook.received.some(({ event }) => event.type === 'user.deleted'));
  const { items } = await deliveryCollection(await storeOf(t, app)).page({ sort: 'id', limit: 100 });
  const stored = JSON.stringify(items);
  t.notMatch(stored, ada.email);
  t.match(stored, 'user.deleted');
  t.match(stored, other.email);
});
