import { authenticatedByRoute, type FastifyTypebox } from '../../core/http/routes.js';
import { auditCollection } from '../../core/ops/audit.js';
import type { createApprovals } from './approvals/service.js';
import { examplePages } from './authorize/example-pages.js';
import { rejectCrossSiteForms } from './client-auth.js';
import { pathMetadataPlugin } from './discovery.js';
import { addJobs } from './jobs.js';
import { publishedKeys } from './keys.js';
import { oidcPlugin } from './plugin.js';
import { createReceipts } from './receipts.js';
import { createOidcServices } from './services.js';
import type { OidcContext, OidcModuleOptions } from './shared.js';
import { webfingerPlugin } from './webfinger.js';

export type OidcModule = ReturnType<typeof createOidcModule>;

/** OpenID Connect: authorization, tokens, sessions and logout. */
export function createOidcModule(
  context: OidcContext,
  options: OidcModuleOptions,
  openApprovals: typeof createApprovals | undefined,
) {
  const services = createOidcServices(context, options, openApprovals);
  addJobs(services);
  const { keys, sessions, backchannel, signIn, consents, delegationDocuments, approvals } = services;
  context.accountData.add({
    delete: (sub) =>
      Promise.all([
        sessions.forget(sub),
        consents.forget(sub),
        delegationDocuments.deleteMany({ person: sub }),
        approvals?.forget(sub),
      ]),
  });
  return {
    /** The access levels of the routes below. */
    guards: { client: rejectCrossSiteForms, bearer: authenticatedByRoute },
    plugin: (
      fastify: FastifyTypebox,
      { openRoutes }: { openRoutes: ((fastify: FastifyTypebox) => Promise<void>) | undefined },
    ) => oidcPlugin(fastify, services, openRoutes),
    /** The metadata of an issuer with a path, which belongs to the root of the host. */
    pathMetadataPlugin: (fastify: FastifyTypebox) => pathMetadataPlugin(fastify, services),
    /** The same for every issuer. */
    webfingerPlugin: (fastify: FastifyTypebox) => webfingerPlugin(fastify, context),
    /** For pages of the provider itself. */
    signIn,
    sessions,
    examplePages: () => examplePages(services.signInPages, context.issuer()),
    /** Absent if they are not enabled. */
    approvals,
    delegations: options.granted.delegations,
    receipts: createReceipts({ ...services, records: auditCollection(context.store) }),
    logoutFailures: backchannel.failures,
    /** The public keys, those of one algorithm in the order of their configuration. */
    publishedKeys: publishedKeys(context.values, keys),
  };
}
