import t from 'tap';
import { outage } from '../kit/stripe-outage.js';
import { storm } from '../kit/stripe-storm.js';

t.test(
  'after a storm of reordered events, kills and faults all subscriptions match the provider',
  async (t) => {
    const sum = { deliveries: 0, forged: 0, kills: 0, doubts: 0 };
    for (let seed = 1; seed <= 20; seed++) {
      const result = await storm(seed, { subscriptions: 20, events: 220 });
      t.same(result.problems, [], `seed ${seed}`);
      for (const name of ['deliveries', 'forged', 'kills', 'doubts'] as const) sum[name] += result[name];
    }
    t.comment(sum);
    t.ok(sum.kills > 100 && sum.forged > 300, 'it was a storm');
  },
);

t.test('after an outage of the provider every user is correct within a minute', async (t) => {
  let wrongAtReturn = 0;
  for (let seed = 1; seed <= 8; seed++) {
    const result = await outage(seed);
    t.same(result.problems, [], `seed ${seed}`);
    wrongAtReturn += result.wrongAtReturn;
    const runs = result.lasted / 20 + 1;
    t.ok(result.callsWhileDown < result.events + 4 * runs, `seed ${seed}: few calls while it is down`);
  }
  t.ok(wrongAtReturn > 8, 'the outages left users in doubt');
});
