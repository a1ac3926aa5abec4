import type { Test } from 'tap';
import type { Clock } from '../../src/core/kernel/clock.js';
import type { Random } from '../../src/core/kernel/secrets.js';
import type { Audit } from '../../src/core/ops/audit.js';
import type { Store } from '../../src/core/storage/collection.js';
import { openPermissions } from '../../src/idp/agents.js';
import { SCOPES } from '../../src/idp/oidc/claims.js';
import type { Resources } from '../../src/idp/oidc/resources.js';
import { EVERY_AGENT } from '../../src/idp/permissions/store.js';
import { createResourceAdministration, type ResourceInput } from '../../src/idp/resources/administration.js';
import { createResourceService } from '../../src/idp/resources/service.js';
import { resourceCollection } from '../../src/idp/resources/store.js';
import { type Answer, basic } from './app.js';
import { SILENT_AUDIT } from './effects.js';
import { grantedIn } from './granted.js';
import { groupsIn } from './groups.js';
import { type IdpApp, idpStore, type RegisteredClient, search } from './idp.js';
import { COMMAND_SOURCE } from './operator.js';

/** Resources as `idp resource` registers them. */

export const FILES = 'https://files.example.test';

export const FILES_INPUT: ResourceInput = {
  name: 'Files',
  scopes: [
    { name: 'files:read', description: 'Read your files' },
    { name: 'files:write', description: 'Change your files' },
  ],
  tokenLifetimeSeconds: 600,
  principalKinds: ['agent', 'human'],
  admitsSelfRegistered: true,
  sensitive: [],
  requiresDpop: false,
};

/** For services that are tested without any resource. */
export const NO_RESOURCES: Resources = {
  find: async () => null,
  findServer: async () => null,
  isSame: (one, other) => one === other,
  hasAny: async () => false,
  all: async () => [],
};

/** The commands on a store, as another process runs them. */
export function resourcesIn(
  store: Store,
  { clock, random }: { clock: Clock; random: Random },
  audit: Audit = SILENT_AUDIT,
) {
  const granted = grantedIn(store, { clock, random }, { audit, hasResources: true });
  const administration = createResourceAdministration(resourceCollection(store), {
    ...granted,
    ...{ allowHttp: false, reservedScopes: SCOPES, signingAlgorithms: ['EdDSA', 'ES256'] },
    groups: groupsIn(store, { clock, random }),
    permissions: { leaving: (of) => permissions.leaving(of) },
  });
  const remove: typeof administration.remove = async (...given) => {
    const removed = await administration.remove(...given);
    await granted.backgroundTasks.settled();
    return removed;
  };
  const permissions = openPermissions(
    { ...granted, store },
    {
      groups: groupsIn(store, { clock, random }, audit),
      resources: createResourceService(resourceCollection(store), { clock }),
      revocations: () => granted.revocations,
    },
  );
  return { ...administration, remove, permissions, settled: granted.backgroundTasks.settled };
}

/** Registers an API, which every agent may use unless `agents` is false. */
export async function addResource(
  t: Test,
  idp: IdpApp,
  identifier = FILES,
  { agents = true, ...more }: Partial<ResourceInput> & { agents?: boolean } = {},
) {
  const resources = resourcesIn(await idpStore(t, idp), idp);
  const { resource, secret } = await resources.add(identifier, { ...FILES_INPUT, ...more }, COMMAND_SOURCE);
  if (agents) await resources.permissions.allow(EVERY_AGENT, identifier, {}, COMMAND_SOURCE);
  return { ...resources, id: resource.id, identifier, secret };
}

/** What the provider tells a resource server, or another caller, about a token. */
export const introspect = (
  idp: IdpApp,
  caller: { id: string; secret?: string | undefined } | RegisteredClient,
  token: string,
): Promise<Answer> =>
  idp.request('POST', '/introspect', {
    form: search({ token }),
    headers: { authorization: basic(caller.id, caller.secret ?? '') },
  });
