import formbody from '@fastify/formbody';
import { access, type FastifyTypebox, routeRules } from '../../core/http/routes.js';
import type { PersonGuard } from '../../shared/account-pages/guard.js';
import { addressPlugin } from './address.js';
import { agentsPagePlugin } from './agents.js';
import { billingPagePlugin } from './billing.js';
import { codePlugin } from './code.js';
import type { PageContext } from './context.js';
import { detailsPlugin, type FieldForm } from './fields.js';
import { impersonationPagePlugin } from './impersonation.js';
import { invitationPlugin } from './invitation.js';
import { keysPagePlugin } from './keys.js';
import { operatorPagePlugin } from './operator.js';
import { organizationPlugin } from './organization.js';
import { createBilledOf, createOrganizationList, organizationsPlugin } from './organizations.js';
import { passkeysPlugin } from './passkeys.js';
import { providersPlugin } from './providers.js';
import { rejectForeignForm } from './session.js';
import { signInPlugin } from './sign-in.js';
import type { SignInPages } from './sign-in-pages.js';
import { type SignUpForm, signUpPlugin } from './sign-up.js';

export interface UserPagesPluginOptions extends PageContext {
  signInPages: SignInPages;
  signUpForm: SignUpForm;
  fieldForm: FieldForm;
  /** Of the account pages, which these extend. */
  guard: PersonGuard;
}

const FORM_LIMIT_BYTES = 16 * 1024;

/** The pages of saas-backend beside those that it shares with the identity provider, in the same context. */
export async function userPagesPlugin(
  fastify: FastifyTypebox,
  options: UserPagesPluginOptions,
): Promise<void> {
  const { providers, passkeys, agents, keys, billing, organizations } = options;
  await fastify.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  fastify.addHook('preHandler', async (request) => {
    if (request.method !== 'POST') return;
    if (routeRules(request.routeOptions).access === 'public') rejectForeignForm(request, options.publicUrl());
    else options.guard.checkForm(request);
  });
  await fastify.register(signInPlugin, options);
  await fastify.register(signUpPlugin, options);
  await fastify.register(addressPlugin, options);
  if (options.fieldForm.inputs.length > 0) await fastify.register(detailsPlugin, options);
  const { emailLogin } = options.accounts;
  if (emailLogin) await fastify.register(codePlugin, { ...options, emailLogin });
  if (passkeys) await fastify.register(passkeysPlugin, { ...options, passkeys });
  if (providers) await fastify.register(providersPlugin, { ...options, providers });
  if (agents) await fastify.register(agentsPagePlugin, { ...options, agents });
  if (keys) await fastify.register(keysPagePlugin, { ...options, keys });
  const { identityOf, path } = options;
  if (billing)
    await fastify.register(billingPagePlugin, {
      ...{ ...options, billing, base: '/billing' },
      billedOf: async (request) => ({ owner: identityOf(request).user, own: `${path()}/billing` }),
    });
  if (organizations) {
    const pages = { ...options, organizations };
    const list = createOrganizationList(pages);
    await fastify.register(invitationPlugin, { ...options, invitations: organizations.invitations });
    await fastify.register(organizationsPlugin, { ...pages, list });
    await fastify.register(organizationPlugin, { ...pages, list });
    if (billing)
      await fastify.register(billingPagePlugin, {
        ...{ ...options, billing, base: '/organization/:organization/billing' },
        billedOf: createBilledOf(pages),
      });
  }
  await fastify.register(operatorPagePlugin, options);
  const { impersonation } = options.accounts;
  if (impersonation) await fastify.register(impersonationPagePlugin, { ...options, impersonation });
  fastify.get('/export', { config: access('recent-person', { page: true }) }, (request, reply) =>
    options.sendExport(request, reply, options.identityOf(request).user.id),
  );
}
