import { AppError } from '../core/kernel/errors.js';
import { allOf } from '../core/storage/pages.js';
import type { AccessToken } from '../resource-server/access-token.js';
import { agentErrors } from './agents/errors.js';
import { DIRECTORY, OWN_SCOPES } from './agents/schemas.js';
import type { SaasBase } from './base.js';
import { federationErrors } from './login-providers/errors.js';
import type { LoginProvidersModule } from './login-providers/module.js';
import { identityCollection, identityId } from './login-providers/store.js';

export type SaasDirectory = NonNullable<ReturnType<typeof openDirectory>>;

/** The directory as its people use it here. Undefined without the option. */
export function openDirectory({ fastify, context, runtime, values, agentScopes, apiUrl }: SaasBase) {
  const { directory, scopes: described = {} } = runtime.agents ?? {};
  if (!directory) return undefined;
  const { issuer } = directory;
  const identities = identityCollection(context.store);

  /** The `sub` of the people of the directory who are this user: one, unless the user has connected more. */
  const subjectsOf = async (userId: string): Promise<string[]> => {
    const connected = await allOf(identities, { where: { userId }, sort: 'createdAt' });
    return connected.filter((one) => one.issuer === issuer()).map(({ subject }) => subject);
  };

  context.accountData.add({
    // Before the user is deleted, or an agent would create the user again.
    async close(userId) {
      for (const sub of await subjectsOf(userId)) await directory.endDelegations(sub, apiUrl());
    },
  });

  return {
    /** Whether a user may act: one who is a person of the directory, only while they are active there. */
    async admits(userId: string): Promise<boolean> {
      for (const sub of await subjectsOf(userId)) if (!(await directory.findPerson(sub))) return false;
      return true;
    },

    /** Lets people sign in, and answers who they are here. */
    connect({ add, service }: LoginProvidersModule) {
      const register = async (): Promise<void> => {
        const { brandName } = values;
        const names = [...new Set([...Object.keys(OWN_SCOPES), ...agentScopes])];
        const texts: Record<string, string> = { ...OWN_SCOPES, ...described };
        const clientId = await directory.registerApplication({
          resource: apiUrl(),
          name: brandName ?? 'Application',
          scopes: names.map((name) => ({ name, description: texts[name] ?? name })),
          callback: `${apiUrl()}/auth/callback/${DIRECTORY}`,
        });
        add(DIRECTORY, { issuer: issuer(), clientId, label: brandName ?? 'Single sign-on' });
      };
      // A port that is not configured is known once the server listens.
      if (values.publicUrl === undefined) fastify.addHook('onListen', register);
      else fastify.addHook('onReady', register);
      return {
        issuer,
        /** The user of a person. The first request of an agent creates the user, but none takes over an account. */
        async userOf({ subject, claims }: AccessToken, ip: string): Promise<string | null> {
          const identity = { issuer: issuer(), subject };
          // Read before the delegation, which the deletion of a user ends first: no agent creates the user again.
          const known = await identities.findOne({ id: identityId(identity) });
          const delegation = typeof claims['delegation'] === 'string' ? claims['delegation'] : undefined;
          const person = await directory.findPerson(subject, delegation);
          if (!person || known || delegation === undefined) return (person && known?.userId) ?? null;
          const ticket = { provider: DIRECTORY, identity: { ...identity, ...person } };
          const source = { ip, isDisconnected: () => false };
          return service.userOf(ticket, source, { isCounted: false }).then(
            ({ userId }) => userId,
            (error: unknown) => {
              // As at the sign-in of the person.
              if (!(error instanceof AppError) || !(error.code in federationErrors)) throw error;
              throw agentErrors.ACCOUNT_NOT_CONNECTED({ message: error.message });
            },
          );
        },
      };
    },
  };
}
