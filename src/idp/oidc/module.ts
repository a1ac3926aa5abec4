import { authenticatedByRoute, type FastifyTypebox } from '../../core/http/routes.js';
import { rejectCrossSiteForms } from './client-auth.js';
import type { ActiveDelegation, EndedBy } from './delegations/service.js';
import { pathMetadataPlugin } from './discovery.js';
import { addJobs } from './jobs.js';
import { publishedKeys } from './keys.js';
import { oidcPlugin } from './plugin.js';
import { createOidcServices } from './services.js';
import type { OidcContext, OidcModuleOptions } from './shared.js';

export type OidcModule = Awaited<ReturnType<typeof createOidcModule>>;

/** OpenID Connect: authorization, tokens, sessions and logout. */
export async function createOidcModule(context: OidcContext, options: OidcModuleOptions) {
  const services = await createOidcServices(context, options);
  addJobs(services);
  const { keys, sessions, backchannel, signIn, consents, delegationDocuments } = services;
  context.accountData.add({
    delete: (sub) =>
      Promise.all([
        sessions.forget(sub),
        consents.forget(sub),
        delegationDocuments.deleteMany({ person: sub }),
      ]),
  });
  return {
    /** The access levels of the routes below. */
    guards: { client: rejectCrossSiteForms, bearer: authenticatedByRoute },
    plugin: (fastify: FastifyTypebox) => oidcPlugin(fastify, services),
    /** The metadata of an issuer with a path, which belongs to the root of the host. */
    pathMetadataPlugin: (fastify: FastifyTypebox) => pathMetadataPlugin(fastify, services),
    /** For pages of the provider itself. */
    signIn,
    sessions,
    delegations: createDelegationLists(options),
    logoutFailures: backchannel.failures,
    /** The public keys, those of one algorithm in the order of their configuration. */
    publishedKeys: publishedKeys(context.values, keys),
  };
}

/** The delegations for the account page and the console. Without a resource there are none, and nothing is loaded. */
function createDelegationLists({ granted: { delegations }, resources }: OidcModuleOptions) {
  return {
    list: async (of: { person: string } | { agent: string }): Promise<ActiveDelegation[]> =>
      (await resources.hasAny()) ? (await delegations()).list(of) : [],
    end: async (id: string, by: EndedBy) => (await delegations()).end(id, by),
    endOwn: async (person: string, id: string, by: EndedBy) => (await delegations()).endOwn(person, id, by),
  };
}
