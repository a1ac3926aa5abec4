import { authenticatedByRoute, type FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { adminGuard, signupGuard } from './guards.js';
import { provisioningPlugin } from './plugin.js';
import { createProvisioningServices, type PageServices, type ProvisioningModuleOptions } from './services.js';

export type ProvisioningModule = ReturnType<typeof createProvisioningModule>;

/** Principals, who sign in, and clients, which they sign in to. */
export function createProvisioningModule(context: ModuleContext, options: ProvisioningModuleOptions) {
  const { isSignupOpen, adminToken, inviteToken = adminToken } = options;
  const { audit, throttle, jobs } = context;
  const services = createProvisioningServices(context, options);
  jobs.add('unused-client-purge', services.clients.purge);
  jobs.add('invitation-purge', services.links.purge);
  const inOutage = { attemptAsOperator: throttle.attemptAsOperatorInOutage };
  return {
    ...services,
    /** The access levels of the routes below. */
    guards: {
      admin: adminGuard(adminToken, context),
      metrics: adminGuard(adminToken, { audit, throttle: inOutage }),
      inviter: adminGuard(inviteToken, context),
      signup: signupGuard(isSignupOpen),
      agent: authenticatedByRoute,
    },
    plugin: (fastify: FastifyTypebox, pages: PageServices): Promise<void> =>
      provisioningPlugin(fastify, { ...services, ...pages }),
  };
}
