import t, { type Test } from 'tap';
import { MINUTE } from '../../../src/core/kernel/clock.js';
import { JWT_BEARER } from '../../../src/idp/oidc/identity-assertions/trust.js';
import { onEngines } from '../../core/storage/engines.js';
import { agentKeysIn } from '../../kit/agent-keys.js';
import { approvalWorld, PAYMENTS } from '../../kit/approvals.js';
import { asserted } from '../../kit/client-keys.js';
import { foreignIssuer, type IssuerKey, issuerKey } from '../../kit/identity-assertions.js';
import { type Credentials, ISSUER, idpStore, search } from '../../kit/idp.js';
import { numbersFrom } from '../../kit/random.js';
import { introspect } from '../../kit/resources.js';
import { workloadToken } from '../../kit/workloads.js';

/** Random sequences of what platforms, agents, people and operators do, compared with a model. */

const SEEDS = [1, 2, 3];
const STEPS = 100;
const SUBJECTS = [
  'repo:acme/app:main',
  'repo:acme/app:main',
  'repo:acme/app:tags/v1',
  'repo:acme/apple:main',
];
const FORMS = { 'repo:acme/app:main': /^repo:acme\/app:main$/, 'repo:acme/app:*': /^repo:acme\/app:/ };

/** A person or an agent. What it had in an earlier epoch has ended. */
interface Party extends Credentials {
  isActive: boolean;
  epoch: number;
  rules: { id: string; form: RegExp; audience: string }[];
}

interface Assertion {
  text: string;
  sub: string;
  aud: string;
  exp: number;
  key: IssuerKey;
}

interface Asked {
  code: string;
  agent: Party;
  epoch: number;
  isMeant: boolean;
  end: number;
  decision?: 'allow' | 'deny';
  personEpoch?: number;
  isUsed?: boolean;
}

async function explore(
  t: Test,
  { databaseUri, seed }: { databaseUri: string; seed: number },
  seen: Set<string>,
) {
  const world = await approvalWorld(t, { loopbackDocuments: true, databaseUri });
  const { idp, api, ask, open } = world;
  const rules = agentKeysIn(await idpStore(t, idp), idp);
  const next = numbersFrom(seed);
  const pick = <V>(values: readonly V[]): V => values[next() % values.length] as V;
  const party = (who: Credentials): Party => ({ ...who, isActive: true, epoch: 0, rules: [] });
  const agents = [party(world.agent), party(await idp.mintAgent())];
  const person = party(world.human);
  let [previous, current] = [issuerKey('ES256'), issuerKey('ES256')];
  const stranger = issuerKey('ES256');
  const platform = await foreignIssuer(t, current);
  const assertions: Assertion[] = [];
  const asked: Asked[] = [];
  const issued: { token: string; until: number; holders: { of: Party; epoch: number }[] }[] = [];
  const log: string[] = [];
  const { clock } = idp;

  /** Compares what has happened with the model. */
  const expect = (what: string, actual: boolean, expected: boolean) => {
    log.push(`${what} ${actual}`);
    seen.add(`${what} ${actual}`);
    if (actual !== expected) throw new Error(`The model says ${expected}: ${log.join(', ')}`);
  };
  const isSame = ({ of, epoch }: { of: Party; epoch: number | undefined }) =>
    of.isActive && of.epoch === epoch;
  const keep = (body: { access_token?: string; expires_in?: number }, ...of: Party[]): boolean => {
    const { access_token: token, expires_in: seconds = 0 } = body;
    const holders = of.map((one) => ({ of: one, epoch: one.epoch }));
    if (token !== undefined) issued.push({ token, until: clock.now() + seconds * 1000, holders });
    return token !== undefined;
  };
  const setActive = async (one: Party, isActive: boolean) => {
    await idp.admin('POST', `/v1/principals/${one.sub}/${isActive ? 'enable' : 'disable'}`);
    one.isActive = isActive;
    if (!isActive) one.epoch++;
  };

  const trust = async (agent: Party) => {
    if (agent.rules.length > 2) return;
    const [subject, form] = pick(Object.entries(FORMS));
    const audience = pick([undefined, undefined, 'api']);
    const input = { issuer: platform.issuer, subject, ...(audience && { audience }) };
    const id = (await rules.trust(agent.sub, input))?.id ?? '';
    agent.rules.push({ id, form, audience: audience ?? ISSUER });
  };

  const assertionOf = async ({
    seconds = 3600,
    ...given
  }: Pick<Assertion, 'sub' | 'aud' | 'key'> & { seconds?: number }): Promise<Assertion> => {
    const { sub, aud, key } = given;
    const exp = Math.floor(clock.now() / 1000) + seconds;
    const text = await workloadToken({ issuer: platform.issuer, key }, clock.now(), { sub, aud, exp });
    return { ...given, text, exp };
  };
  const present = async (agent: Party, { text, sub, aud, exp, key }: Assertion) => {
    const proof = pick([
      { grant_type: 'client_credentials', ...asserted(text) },
      { grant_type: JWT_BEARER, assertion: text },
    ]);
    const form = search({ ...proof, client_id: agent.sub, resource: PAYMENTS });
    const { body } = await idp.request('POST', '/token', { form });
    const isFresh = exp > Math.floor(clock.now() / 1000) && key === current;
    const isTrusted = agent.rules.some(({ form, audience }) => form.test(sub) && audience === aud);
    expect('present', keep(body, agent), agent.isActive && isFresh && isTrusted);
  };

  const poll = async (one: Asked | undefined) => {
    if (!one) return;
    const by = next() % 5 ? one.agent : pick(agents);
    const { body } = await world.poll(one.code, {}, by);
    const isAllowed = one.decision === 'allow' && !one.isUsed && clock.now() < one.end;
    const areSame =
      isSame({ of: one.agent, epoch: one.epoch }) && isSame({ of: person, epoch: one.personEpoch });
    const isIssued = keep(body, one.agent, person);
    expect('poll', isIssued, by === one.agent && isAllowed && areSame);
    one.isUsed ||= isIssued;
  };

  const steps: Record<string, () => Promise<void>> = {
    trust: () => trust(pick(agents)),
    async distrust() {
      const agent = pick(agents);
      const [rule] = agent.rules.splice(next() % (agent.rules.length || 1), 1);
      if (!rule) return;
      await rules.distrust(agent.sub, rule.id);
      agent.epoch++;
    },
    disable: async () => setActive(pick([...agents, person]), false),
    async enable() {
      for (const one of [...agents, person]) if (!one.isActive) await setActive(one, true);
    },
    /** The keys that the platform has published before are known for five minutes. The old one is used first. */
    async rotate() {
      const agent = pick(agents);
      const used = { sub: 'repo:acme/app:main', aud: agent.rules[0]?.audience ?? ISSUER, key: current };
      await present(agent, await assertionOf(used));
      [previous, current] = [current, issuerKey('ES256')];
      platform.publish(current);
      clock.advance(6 * MINUTE);
      await present(agent, await assertionOf(used));
    },
    async present() {
      if (assertions.length === 0 || next() % 3)
        assertions.push(
          await assertionOf({
            sub: pick(SUBJECTS),
            aud: pick([ISSUER, ISSUER, ISSUER, 'api', 'x']),
            key: pick([current, current, current, current, previous, stranger]),
            seconds: pick([60, 3600]),
          }),
        );
      await present(pick(agents), pick(assertions.slice(-6)));
    },
    async ask() {
      const agent = pick(agents);
      const { body } = await ask({}, agent);
      const code: string | undefined = body.auth_req_id;
      // A person has at most some open requests.
      expect('ask', code !== undefined, agent.isActive && code !== undefined);
      const end = clock.now() + 5 * MINUTE;
      if (code) asked.push({ code, agent, epoch: agent.epoch, isMeant: person.isActive, end });
    },
    async decide() {
      const one = pick(asked.slice(-4));
      if (!one) return;
      const { browser, page } = await open(one.code);
      const isShown = page.body.includes('value="allow"');
      const isOpen = one.decision === undefined && one.isMeant && clock.now() < one.end;
      expect('decide', isShown, isOpen && person.isActive && isSame({ of: one.agent, epoch: one.epoch }));
      if (!isShown) return;
      one.decision = pick(['allow', 'allow', 'deny']);
      one.personEpoch = person.epoch;
      await browser.submit(page, { decision: one.decision });
    },
    poll: async () => poll(pick(asked.slice(-4))),
    /** An agent that was stopped after the approval gets nothing by it, also when it is back. */
    async restart() {
      const one = asked.slice(-4).find(({ decision, isUsed }) => decision === 'allow' && !isUsed);
      if (!one) return;
      for (const isActive of [false, true]) await setActive(one.agent, isActive);
      await poll(one);
    },
    wait: async () => clock.advance(pick([1, 1, 3]) * MINUTE),
    async check() {
      const one = pick(issued.slice(-6));
      if (!one) return;
      const { active } = (await introspect(idp, api, one.token)).body;
      expect('check', active, clock.now() < one.until && one.holders.every(isSame));
    },
  };
  const often = [
    'present',
    'present',
    'present',
    'ask',
    'decide',
    'decide',
    'poll',
    'poll',
    'check',
    'enable',
  ];
  const names = [...Object.keys(steps), 'trust', 'enable', ...often];
  for (const agent of agents) await trust(agent);
  for (let step = 0; step < STEPS; step++) {
    const name = pick(names);
    log.push(name);
    await steps[name]?.();
  }
}

await onEngines((engine, fresh) => {
  t.test(`on ${engine}, agents get exactly the tokens that rules and people allow`, async (t) => {
    const seen = new Set<string>();
    for (const seed of SEEDS) await explore(t, { databaseUri: fresh(t), seed }, seen);
    for (const what of ['present', 'decide', 'poll', 'check'])
      for (const outcome of [true, false]) t.ok(seen.has(`${what} ${outcome}`), `${what} ${outcome}`);
  });
});
