import t from 'tap';
import { idpApp } from '../../kit/idp.js';
import { enterConsole, makeOperator } from '../../kit/operator.js';

/** The search field of the console. */

const HERE = { publicUrl: undefined, limits: false } as const;
const path = (q: string) => `/search?q=${encodeURIComponent(q)}`;
const headings = (page: string) =>
  [...page.matchAll(/<h2 id="found-\d">([^<]*)</g)].map(([, heading]) => heading);

t.test(
  'one field finds people, agents and applications, and leads to what an identifier names',
  async (t) => {
    const idp = await idpApp(t, HERE);
    const { get } = await enterConsole(idp, await makeOperator(t, idp, 'olga'));
    const person = await idp.makeHuman({ handle: 'maximilian' });
    const agent = await idp.mintAgent({ handle: 'max-agent', name: 'Crawler of Ärzte' });
    const client = await idp.createClient({ name: 'Maximal Shop' });
    const found = (await get(path('AXIM'))).body;
    t.same(headings(found), ['People and agents', 'Applications']);
    t.match(found, 'maximilian');
    t.match(found, 'Maximal Shop');
    t.notMatch(found, 'max-agent');
    t.match((await get(path('r of ÄRZ'))).body, 'max-agent', 'by the name of an agent');
    t.match((await get('/clients?q=mal+sh')).body, client.id);
    const pageOf = async (q: string) => (await get(path(q))).body;
    t.match(await pageOf(person.sub), '<h1>maximilian</h1>');
    t.match(await pageOf('maximilian'), '<h1>maximilian</h1>', 'the whole user name');
    t.match(await pageOf(agent.sub), '<h1>max-agent</h1>');
    t.match(await pageOf(client.id), '<h1>Maximal Shop</h1>');
    for (const none of ['%%%', '___', '"""', 'nobody', 'zz', '\u{10ffff}'])
      t.match(await pageOf(none), 'Nothing was found', none);
  },
);

t.test('the search is for operators, and finds nothing of a deleted person', async (t) => {
  const idp = await idpApp(t, HERE);
  const { get, act } = await enterConsole(idp, await makeOperator(t, idp, 'olga'));
  const person = await idp.makeHuman({ handle: 'evelyn' });
  const anonymous = await idp.request('GET', `/admin${path('evelyn')}`);
  t.equal(anonymous.status, 401);
  t.notMatch(anonymous.text, person.sub);
  t.match((await get(path('velyn'))).body, person.sub);
  t.match((await act(`/principals/${person.sub}/delete`, { confirm: 'evelyn' })).body, 'Deleted.');
  t.match((await get(path('velyn'))).body, 'Nothing was found');
  t.notMatch((await get('/principals?q=velyn')).body, person.sub);
  t.match((await get('/principals?q=velyn&state=deleted')).body, person.sub, 'unless they are asked for');
});
