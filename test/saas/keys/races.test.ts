import t, { type Test } from 'tap';
import { keyCollection } from '../../../src/saas/keys/store.js';
import { onEngines } from '../../core/storage/engines.js';
import { openAt, PASSWORD } from '../../kit/app.js';
import { type Posted, post, spread, startAll } from '../../kit/saas-processes.js';
import { waitUntil } from '../../kit/wait.js';

/** Simultaneous changes on four processes. */

const MANY = 50;

async function races(t: Test, databaseUri: string): Promise<void> {
  const { urls } = await startAll(t, { databaseUri, organizations: true, apiKeys: true, limits: false });
  const [first] = urls as [string];
  const keys = keyCollection(await openAt(t, databaseUri));
  const NEW = { name: 'Race', scopes: ['profile:read'] };
  /** Repeated as clients do while the store is busy: MongoDB aborts transactions that conflict. */
  const send = async (url: string, method: string, path: string, token: string, body?: object) => {
    for (;;) {
      const answer = await post(`${url}/api${path}`, body, { token, method });
      if (answer.status !== 503) return answer;
    }
  };
  let people = 0;
  const signUp = async () => {
    const given = { email: `racer${++people}@example.test`, password: PASSWORD };
    const { body } = await post(`${first}/api/auth/register`, given);
    return { id: body.data.user.id as string, token: body.data.accessToken as string };
  };
  const create = async (token: string, path = '/user/keys') => {
    const { body } = await send(first, 'POST', path, token, NEW);
    return { id: body.data.key.id as string, secret: body.data.secret as string };
  };
  const statuses = (answers: Posted[]) => [...new Set(answers.map(({ status }) => status))].sort();
  const created = (answers: Posted[]) => answers.filter(({ status }) => status === 201);

  await t.test('of fifty rotations of one key, one is made', async (t) => {
    const ada = await signUp();
    const { id } = await create(ada.token);
    const answers = await spread(urls, MANY, (url) =>
      send(url, 'POST', `/user/keys/${id}/rotate`, ada.token, {}),
    );
    t.equal(created(answers).length, 1);
    t.same(statuses(answers), [201, 409]);
    t.equal(await keys.count({ userId: ada.id }), 2);
    t.equal((await keys.findOne({ id }))?.replacedBy, created(answers)[0]?.body.data.key.id);
  });

  await t.test('twenty creations fill the last five places of a user and of an organization', async (t) => {
    const ada = await signUp();
    const made = await send(first, 'POST', '/organizations', ada.token, { name: 'Races' });
    const organization = made.body.data.organization.id as string;
    const bob = await signUp();
    const store = await openAt(t, databaseUri);
    await store.collection('organization_members').insert({
      ...{ id: `${organization}:${bob.id}`, organizationId: organization, userId: bob.id, role: 'admin' },
      createdAt: 1,
    } as never);
    for (const owner of [ada.id, organization]) {
      const path = owner === ada.id ? '/user/keys' : `/organizations/${organization}/keys`;
      const documents = Array.from({ length: 45 }, (_, index) => ({
        ...{ id: `key_${owner}_${index}`, hash: `${owner} ${index}`, owner, userId: ada.id },
        ...{ name: 'One of many', scopes: ['profile:read'], createdAt: 1 },
      }));
      await keys.insertMany(documents);
      const answers = await spread(urls, 20, (url, index) =>
        send(url, 'POST', path, owner === ada.id || index % 2 ? ada.token : bob.token, NEW),
      );
      // Of a commit whose outcome the store did not tell, the answer to the repeated request is a refusal.
      t.ok(created(answers).length <= 5, path);
      t.same(statuses(answers), [201, 409]);
      t.equal(await keys.count({ owner }), 50);
    }
  });

  await t.test('a key that ends while it is used and rotated stays ended', async (t) => {
    const ada = await signUp();
    const { id, secret } = await create(ada.token);
    const answers = await spread(urls, MANY, (url, index) => {
      if (index % 10 === 5) return send(url, 'DELETE', `/user/keys/${id}`, ada.token);
      if (index % 10 === 7) return send(url, 'POST', `/user/keys/${id}/rotate`, ada.token, {});
      return send(url, 'GET', '/user/profile', secret);
    });
    t.equal(answers.filter((_, index) => index % 10 === 5).filter(({ status }) => status === 200).length, 1);
    t.ok(created(answers).length <= 1);
    for (const url of urls) t.equal((await send(url, 'GET', '/user/profile', secret)).status, 401);
    t.equal(await keys.findOne({ id }), null, 'the use that is written last creates nothing');
  });

  await t.test('an account that is deleted while it creates keys leaves none', async (t) => {
    const ada = await signUp();
    const answers = await spread(urls, 20, (url, index) =>
      index === 8
        ? send(url, 'POST', '/user/delete', ada.token, { password: PASSWORD })
        : send(url, 'POST', '/user/keys', ada.token, NEW),
    );
    t.notOk(answers.some(({ status }) => status >= 500));
    await waitUntil('no key is left', async () => (await keys.count({ userId: ada.id })) === 0);
    const late = await send(first, 'POST', '/user/keys', ada.token, NEW);
    t.equal(late.status, 401);
  });
}

await onEngines((engine, fresh) => {
  t.test(`${engine}: races of API keys`, (t) => races(t, fresh(t)));
});
