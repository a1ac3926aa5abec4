import { addressOf } from '../core/http/mailboxes.js';
import { defined } from '../core/kernel/fields.js';
import { sha256 } from '../core/kernel/secrets.js';
import { nullIfTaken } from '../core/storage/collection.js';
import type { HostedApplication, PersonDirectory } from '../shared/directory.js';
import type { IdpContext } from './context.js';
import { type IsVerified, SCOPES } from './oidc/claims.js';
import type { Directory } from './oidc/directory.js';
import type { GrantedAccess } from './oidc/granted-access.js';
import { idTokenAlgorithmsOf } from './options.js';
import type { ProvisioningModule } from './provisioning/module.js';
import type { ResourceAdministrationDependencies } from './resources/administration.js';
import type { ResourceService } from './resources/service.js';
import { resourceCollection } from './resources/store.js';

export interface PersonDirectoryDependencies
  extends Pick<ResourceAdministrationDependencies, 'groups' | 'permissions'> {
  findPrincipal: Directory['findPrincipal'];
  isVerified: IsVerified;
  clients: ProvisioningModule['clients'];
  resources: ResourceService;
  granted: Pick<GrantedAccess, 'delegations' | 'endResource'>;
}

/** Of what the application of the process does. */
const SOURCE = { ip: 'local', isDisconnected: () => false };

/** What an application in the same process uses, whose users are the people of the provider. */
export function createPersonDirectory(
  context: IdpContext,
  deps: PersonDirectoryDependencies,
): PersonDirectory {
  const { resources, clients, granted } = deps;

  /** With the scopes that it lacks. */
  const registerResource = async ({ resource, name, scopes }: HostedApplication): Promise<void> => {
    const { createResourceAdministration } = await import('./resources/administration.js');
    const administration = createResourceAdministration(resourceCollection(context.store), {
      ...{ ...context, ...deps, endResource: granted.endResource },
      ...{ allowHttp: !context.production, reservedScopes: SCOPES },
      signingAlgorithms: idTokenAlgorithmsOf(context.values),
    });
    const known = await resources.find(resource);
    const missing = scopes.filter(({ name }) => !known?.scopes.some((one) => one.name === name));
    if (known && missing.length > 0)
      await administration.update(known.identifier, { scopes: [...known.scopes, ...missing] }, SOURCE);
    if (known) return;
    const terms = { tokenLifetimeSeconds: 600, sensitive: [], requiresDpop: false };
    const admitted = { principalKinds: ['agent', 'human'], admitsSelfRegistered: 'people' } as const;
    await administration
      .add(resource, { name, scopes, ...terms, ...admitted }, SOURCE)
      .catch(async (error: unknown) => {
        // Another process may have registered it in the meantime.
        if (!(await resources.find(resource))) throw error;
      });
  };

  return {
    issuer: context.issuer,

    async registerApplication(application) {
      await registerResource(application);
      const { name, callback } = application;
      // The same in all processes, which share no secret.
      const id = `cid_${sha256(callback)}`;
      if (await clients.find(id)) return id;
      const urls = { redirectUris: [callback], postLogoutRedirectUris: [] };
      const rights = { isPublic: true, principalKinds: ['human' as const], trusted: true, strict: true };
      await clients.create({ id, name, ...urls, ...rights }, SOURCE).catch(nullIfTaken);
      return id;
    },

    async findPerson(sub, delegation) {
      const person = await deps.findPrincipal(sub);
      if (person?.kind !== 'human') return null;
      if (delegation !== undefined && (await granted.delegations.find(delegation))?.person.id !== sub)
        return null;
      const email = addressOf(person);
      const emailVerified = email !== undefined && deps.isVerified(person);
      return { ...defined({ email, name: person.name }), emailVerified };
    },

    endDelegations: (person, resource) => granted.delegations.endAll({ person, resource }, { ip: SOURCE.ip }),
  };
}
