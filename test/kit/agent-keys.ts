import type { Test } from 'tap';
import type { Clock } from '../../src/core/kernel/clock.js';
import { createCommit } from '../../src/core/ops/commit.js';
import type { Store } from '../../src/core/storage/collection.js';
import { addressCollection, createAddresses } from '../../src/idp/provisioning/addresses.js';
import { createAgentKeys } from '../../src/idp/provisioning/agent-keys.js';
import { agentUseCollection, createAgentUses } from '../../src/idp/provisioning/agent-uses.js';
import { createAgents } from '../../src/idp/provisioning/agents.js';
import { principalCollection } from '../../src/idp/provisioning/store.js';
import { type ClientKey, clientKey } from './client-keys.js';
import { NO_EFFECT, SILENT_AUDIT } from './effects.js';
import { grantedIn } from './granted.js';
import { groupsIn } from './groups.js';
import { type Credentials, type IdpApp, idpStore } from './idp.js';
import { COMMAND_SOURCE } from './operator.js';

/** Agents with keys, as `idp agent key` changes them. */

/** The commands on a store, as another process runs them. */
export function agentKeysIn(store: Store, { clock }: { clock: Clock }) {
  const principals = principalCollection(store);
  const keys = createAgentKeys(principals, {
    ...{ clock, commit: createCommit(store), audit: SILENT_AUDIT },
    endSessions: async () => NO_EFFECT,
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
