import t from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import { idpApp } from '../../kit/idp.js';
import { enterConsole, makeOperator } from '../../kit/operator.js';

/** Agents and applications that nobody uses: the overview counts them, and the lists show them. */

t.test('what is not used for 90 days is counted and listed, until it is used', async (t) => {
  const idp = await idpApp(t, { publicUrl: undefined, limits: false });
  const olga = await makeOperator(t, idp, 'olga');
  const [used, idle] = [await idp.createClient({ name: 'Used' }), await idp.createClient({ name: 'Idle' })];
  const human = await idp.makeHuman();
  const agent = await idp.mintAgent({ handle: 'idle@example.test' });
  const redeem = async () => t.equal((await idp.redeem(used, await idp.codeFor(used, human))).status, 200);
  await redeem();
  idp.clock.advance(91 * DAY);
  const before = await enterConsole(idp, olga);
  t.match((await before.get('/')).body, /Applications that were not used for 90 days: 2/);
  await redeem();
  await redeem();

  const console = await enterConsole(idp, olga);
  const overview = (await console.get('/')).body;
  t.match(overview, /Applications that were not used for 90 days: 1/);
  t.match(overview, /Agents that were not used for 90 days: 1/);
  const applications = (await console.get('/clients?use=unused')).body;
  t.match(applications, idle.id);
  t.notMatch(applications, used.id);
  t.match((await console.get(`/clients/${used.id}`)).body, 'Last used');
  const agents = (await console.get('/principals?use=unused')).body;
  t.match(agents, agent.sub);
  t.notMatch(agents, human.sub);
  t.notMatch((await console.get('/principals?use=ending')).body, agent.sub);
});
