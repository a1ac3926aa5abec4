import type { Test } from 'tap';
import { createCommit } from '../../src/core/ops/commit.js';
import type { Store } from '../../src/core/storage/collection.js';
import { addressCollection, createAddresses } from '../../src/idp/provisioning/addresses.js';
import { createAgentKeys, createChangeAgent } from '../../src/idp/provisioning/agent-keys.js';
import { agentUseCollection, createAgentUses } from '../../src/idp/provisioning/agent-uses.js';
import { createAgentWorkloads, type WorkloadInput } from '../../src/idp/provisioning/agent-workloads.js';
import { createAgents } from '../../src/idp/provisioning/agents.js';
import { principalCollection } from '../../src/idp/provisioning/store.js';
import { issuerProblem } from '../../src/idp/trust/administration.js';
import { type ClientKey, clientKey } from './client-keys.js';
import { SILENT_AUDIT } from './effects.js';
import { grantedIn } from './granted.js';
import { groupsIn } from './groups.js';
import { type Credentials, type IdpApp, ISSUER, idpStore } from './idp.js';
import { COMMAND_SOURCE } from './operator.js';

/** Agents with keys, as `idp agent key` changes them. */

/** The commands on a store, as another process runs them. */
export function agentKeysIn(store: Store, { clock, random }: Pick<IdpApp, 'clock' | 'random'>) {
  const principals = principalCollection(store);
  const change = createChangeAgent(principals, grantedIn(store, { clock, random }, { hasResources: true }));
  const keys = createAgentKeys({ change, clock });
  const workloads = createAgentWorkloads({
    ...{ change, clock, random },
    issuerProblem: (issuer) => issuerProblem(issuer, { allowHttp: true, ownIssuer: () => ISSUER }),
  });
  const find = async (sub: string) => {
    const found = await principals.findOne({ id: sub });
    if (!found) throw new Error(`there is no principal ${sub}`);
    return found;
  };
  return {
    add: async (sub: string, { jwk }: Pick<ClientKey, 'jwk'>) =>
      keys.add(await find(sub), jwk, COMMAND_SOURCE),
    remove: async (sub: string, id: string) => keys.remove(await find(sub), id, COMMAND_SOURCE),
    trust: async (sub: string, input: WorkloadInput) => workloads.add(await find(sub), input, COMMAND_SOURCE),
    distrust: async (sub: string, id: string) => workloads.remove(await find(sub), id, COMMAND_SOURCE),
    find,
  };
}

/** Changes of agents, as `idp agent update` makes them. */
export function agentsIn(store: Store, { clock, random }: Pick<IdpApp, 'clock' | 'random'>) {
  const principals = principalCollection(store);
  const { endSessions, backgroundTasks } = grantedIn(store, { clock, random }, { hasResources: true });
  return createAgents(principals, {
    ...{ clock, commit: createCommit(store), audit: SILENT_AUDIT as never, backgroundTasks, endSessions },
    groups: groupsIn(store, { clock, random }),
    addresses: createAddresses(principals, addressCollection(store)),
    uses: createAgentUses(agentUseCollection(store), { clock, backgroundTasks }),
    uriRules: { allowHttp: true, nativeSchemes: [] },
  });
}

/** An agent with a password and a key. */
export async function agentWithKey(
  t: Test,
  idp: IdpApp,
  algorithm: ClientKey['algorithm'] = 'EdDSA',
): Promise<Credentials & { key: ClientKey; keyId: string; keys: ReturnType<typeof agentKeysIn> }> {
  const [agent, key] = [await idp.mintAgent(), clientKey(algorithm)];
  const keys = agentKeysIn(await idpStore(t, idp), idp);
  const added = await keys.add(agent.sub, key);
  return { ...agent, key, keyId: added?.id ?? '', keys };
}
