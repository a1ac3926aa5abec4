import t, { type Test } from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { organizationCollections } from '../../../src/saas/organizations/store.js';
import { onEngines } from '../../core/storage/engines.js';
import { openAt, PASSWORD } from '../../kit/app.js';
import { type Posted, post, spread, startAll } from '../../kit/saas-processes.js';
import { waitUntil } from '../../kit/wait.js';

/** Fifty concurrent changes on four processes, some of which are killed: the numbers are right, and there is an owner. */

const MANY = 50;
const MAX_MEMBERS = 10;

interface Person {
  id: string;
  email: string;
  token: string;
}

/** What holds for every organization whenever nothing is under way. */
async function check(t: Test, store: Store): Promise<void> {
  const { organizations, memberships } = organizationCollections(store);
  const { items } = await organizations.page({ sort: 'id', limit: 1000 });
  for (const { id, name, members, owners } of items.filter(({ deletingAt }) => deletingAt === undefined)) {
    const counted = {
      members: await memberships.count({ organizationId: id }),
      owners: await memberships.count({ organizationId: id, role: 'owner' }),
    };
    t.same(counted, { members, owners }, name);
    t.ok(owners >= 1, `${name} has an owner`);
  }
  const ids = new Set(items.map(({ id }) => id));
  const all = await memberships.page({ sort: 'id', limit: 1000 });
  t.ok(
    all.items.every(({ organizationId }) => ids.has(organizationId)),
    'members of existing organizations only',
  );
}

async function races(t: Test, databaseUri: string): Promise<void> {
  const { urls, programs } = await startAll(t, {
    ...{ databaseUri, organizations: true, organizationMaxMembers: MAX_MEMBERS },
  });
  const [first] = urls as [string];
  const store = await openAt(t, databaseUri);
  const users = userCollection(store);
  const { organizations, memberships, invitations } = organizationCollections(store);
  /** Repeated as clients do while the store is busy: MongoDB aborts transactions that conflict. */
  const send = async (url: string, method: string, path: string, token: string, body?: object) => {
    for (;;) {
      const answer = await post(`${url}/api${path}`, body, { token, method });
      if (answer.status !== 503) return answer;
    }
  };

  let signedUp = 0;
  const signUp = async (): Promise<Person> => {
    const email = `person${++signedUp}@example.test`;
    const { body } = await post(`${urls[signedUp % urls.length]}/api/auth/register`, {
      email,
      password: PASSWORD,
    });
    const { user, accessToken: token } = body.data;
    await users.changeOne({ id: user.id }, { set: { emailVerified: true } });
    return { id: user.id, email, token };
  };
  const signUpAll = (count: number) => Promise.all(Array.from({ length: count }, signUp));
  const organize = async (owner: Person, name: string): Promise<string> => {
    const { body } = await send(first, 'POST', '/organizations', owner.token, { name });
    return body.data.organization.id;
  };
  const invite = async (by: Person, organization: string, email: string, role = 'member') => {
    const path = `/organizations/${organization}/invitations`;
    const { body } = await send(first, 'POST', path, by.token, { email, role });
    return body.data.invitation.id as string;
  };
  const accept = (url: string, { token }: Person, id: string) =>
    send(url, 'POST', '/user/invitations/accept', token, { id });
  const join = async (by: Person, organization: string, person: Person, role?: string) =>
    accept(first, person, await invite(by, organization, person.email, role));
  const path = (organization: string, { id }: Person) => `/organizations/${organization}/members/${id}`;
  const succeeded = (answers: Posted[]) => answers.filter(({ status }) => status === 200).length;
  const codes = (answers: Posted[]) => [...new Set(answers.map(({ body }) => body?.error?.code))].sort();
  const [ada, bob, cyd] = (await signUpAll(3)) as [Person, Person, Person];

  await t.test('one invitation, accepted fifty times, makes one member', async (t) => {
    const id = await organize(ada, 'Once');
    const invitation = await invite(ada, id, bob.email);
    const answers = await spread(urls, MANY, (url) => accept(url, bob, invitation));
    t.equal(succeeded(answers), MANY, 'each says the same');
    t.match(await organizations.findOne({ id }), { members: 2, owners: 1 });
    t.equal(await memberships.count({ organizationId: id }), 2);
  });

  await t.test('an invitation that is accepted and withdrawn at once does one of the two', async (t) => {
    const id = await organize(ada, 'Withdrawn');
    const invitation = await invite(ada, id, bob.email);
    const withdrawal = `/organizations/${id}/invitations/${invitation}`;
    const answers = await spread(urls, MANY, (url, index) =>
      index % 2 ? accept(url, bob, invitation) : send(url, 'DELETE', withdrawal, ada.token),
    );
    const isMember = (await memberships.count({ organizationId: id })) === 2;
    const withdrawn = succeeded(answers.filter((_, index) => index % 2 === 0));
    t.equal(withdrawn, isMember ? 0 : 1);
    t.equal((await invitations.findOne({ id: invitation })) === null, !isMember);
  });

  await t.test('fifty people enter an organization with ten places', async (t) => {
    const id = await organize(ada, 'Full');
    const people = await signUpAll(MANY);
    const invited: string[] = [];
    for (const { email } of people) invited.push(await invite(ada, id, email));
    const answers = await spread(urls, MANY, (url, index) =>
      accept(url, people[index] as Person, invited[index] as string),
    );
    t.equal(succeeded(answers), MAX_MEMBERS - 1);
    t.same(codes(answers.filter(({ status }) => status !== 200)), ['TOO_MANY_MEMBERS']);
    t.match(await organizations.findOne({ id }), { members: MAX_MEMBERS, owners: 1 });
  });

  await t.test('of two owners who leave at once, one stays', async (t) => {
    const id = await organize(ada, 'Two owners');
    await join(ada, id, bob, 'owner');
    const answers = await spread(urls, MANY, (url, index) => {
      const who = index % 2 ? ada : bob;
      return send(url, 'DELETE', path(id, who), who.token);
    });
    t.equal(succeeded(answers), 1);
    t.match(await organizations.findOne({ id }), { members: 1, owners: 1 });
  });

  await t.test(
    'two owners who delete their accounts at once leave the organization to a member',
    async (t) => {
      const [eve, dan] = (await signUpAll(2)) as [Person, Person];
      const id = await organize(eve, 'Inherited');
      await join(eve, id, dan, 'owner');
      await join(eve, id, cyd);
      await spread(urls, 8, (url, index) =>
        send(url, 'POST', '/user/delete', (index % 2 ? eve : dan).token, { password: PASSWORD }),
      );
      await waitUntil('both are deleted', async () => {
        const left = await users.count({ id: { in: [eve.id, dan.id] } });
        if (left === 0) return true;
        // Who is the only owner by then transfers the organization first.
        for (const who of [eve, dan])
          await send(first, 'POST', `/organizations/${id}/transfer`, who.token, { userId: cyd.id }).then(() =>
            send(first, 'POST', '/user/delete', who.token, { password: PASSWORD }),
          );
        return false;
      });
      t.match(await memberships.findOne({ organizationId: id, role: 'owner' }), { userId: cyd.id });
      t.match(await organizations.findOne({ id }), { members: 1, owners: 1 });
    },
  );

  await t.test(
    'transfers, departures, role changes and deletions at once, while processes are killed',
    async (t) => {
      for (let round = 0; round < 4; round++) {
        const id = await organize(ada, `Storm ${round}`);
        await join(ada, id, bob, 'owner');
        await join(ada, id, cyd, 'admin');
        const changes: ((url: string) => Promise<Posted>)[] = [
          (url) => send(url, 'POST', `/organizations/${id}/transfer`, ada.token, { userId: cyd.id }),
          (url) => send(url, 'DELETE', path(id, bob), bob.token),
          (url) => send(url, 'PATCH', path(id, bob), ada.token, { role: 'member' }),
          (url) => send(url, 'PATCH', path(id, ada), bob.token, { role: 'admin' }),
          (url) => send(url, 'DELETE', path(id, ada), ada.token),
          ...(round % 2 ? [(url: string) => send(url, 'DELETE', `/organizations/${id}`, bob.token)] : []),
        ];
        // The first process, which later rounds need, is never killed.
        const victim = programs[round + 1];
        let answered = 0;
        const answers = await spread(urls, MANY, async (url, index) => {
          const change = changes[index % changes.length] as (url: string) => Promise<Posted>;
          const answer = await change(url).catch(() => undefined);
          if (++answered === 10) await victim?.kill();
          return answer;
        });
        t.notMatch(codes(answers.filter((one) => one !== undefined)), ['INTERNAL'], 'no error of the server');
        await check(t, store);
      }
    },
  );

  await waitUntil('begun deletions are complete', async () => {
    const left = await organizations.count({ deletingAt: { gt: 0 } });
    return left === 0;
  });
  await check(t, store);
}

await onEngines((engine, fresh) => {
  t.test(`${engine}: races of organizations`, (t) => races(t, fresh(t)));
});
