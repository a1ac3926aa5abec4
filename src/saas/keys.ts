import { isOrganizationId } from '../core/http/identity.js';
import { agentErrors } from './agents/errors.js';
import { OWN_SCOPES } from './agents/schemas.js';
import type { AuthModule } from './auth/module.js';
import type { SaasBase } from './base.js';
import { contributeKeys } from './keys/store.js';
import { organizationCollections } from './organizations/store.js';
import type { SaasOrganizations } from './organizations.js';
import type { FindActiveUser, ReadUser } from './sign-in-methods.js';

export type SaasKeys = NonNullable<Awaited<ReturnType<typeof openKeys>>>;

export interface KeysOptions {
  auth: AuthModule;
  organizations: SaasOrganizations | undefined;
  readUser: ReadUser;
  findUser: FindActiveUser;
}

/** Loads API keys if they are enabled. */
export async function openKeys(
  { context, values, agentScopes }: SaasBase,
  { auth, organizations, readUser, findUser }: KeysOptions,
) {
  contributeKeys(context);
  if (!values.apiKeys) return undefined;
  const { createKeysModule } = await import('./keys/module.js');
  const { organizations: documents } = organizationCollections(context.store);
  const access = organizations?.access;
  return createKeysModule(context, {
    scopes: () => [...new Set([...Object.keys(OWN_SCOPES), ...agentScopes])],
    readUser,
    findUser,
    insufficientScope: agentErrors.INSUFFICIENT_SCOPE,
    ensureCurrent: auth.service.passkey.ensureCurrent,
    async locking(owner) {
      if (!access || !isOrganizationId(owner)) return undefined;
      const { id, keysRev } = await access.requireOpen(owner);
      return documents.changing({ id, deletingAt: null, keysRev: keysRev ?? null }, { inc: { keysRev: 1 } });
    },
    managedBy:
      access &&
      (async (userId, named) => {
        const member = await access.memberOf(named, userId);
        access.demand(member, 'keys:manage');
        return member.organization.id;
      }),
  });
}
