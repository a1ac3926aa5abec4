import { createSealedCookie } from '../../core/http/cookies.js';
import { message } from '../../core/http/messages.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { PersonGuard } from '../../shared/account-pages/guard.js';
import type { Section } from '../../shared/account-pages/page.js';
import type { PageContext, UserPagesModuleOptions } from './context.js';
import { createFieldForm, type FieldForm } from './fields.js';
import { IMPERSONATION_PAGE } from './impersonation.js';
import { INVITATION_PAGE } from './invitation.js';
import { OPERATOR_PAGE } from './operator.js';
import { userPagesPlugin } from './plugin.js';
import { createPageSessions, destinationOf, STATE_LIFETIME_MS } from './session.js';
import { createSignInPages } from './sign-in-pages.js';
import { createSignUpForm } from './sign-up.js';

/** The page of an organization, its page for owners, or that of its plan. */
const ORGANIZATION_PAGE = /^\/organization\/org_\w+(?:\/ownership$|\/billing)?/;

/** The pages for users of saas-backend: sign-in, sign-up, address, connected providers, organizations and billing. */
export type UserPagesModule = ReturnType<typeof createUserPagesModule>;

export function createUserPagesModule({ clock, random }: ModuleContext, options: UserPagesModuleOptions) {
  const { accounts, sessionCookie, publicUrl, path, origins, secrets } = options;
  const sealing = { keys: secrets, lifetimeMs: STATE_LIFETIME_MS, clock, random };
  const sessions = createPageSessions(accounts, sessionCookie);
  const context: PageContext = {
    ...options,
    now: clock.now,
    random,
    sessions,
    destinationOf: (returnTo) =>
      destinationOf(returnTo, { publicUrl: publicUrl(), origins, fallback: path() }),
    cookieOf: (name) => createSealedCookie(name, publicUrl, sealing),
  };
  const signInPages = createSignInPages(context);
  const fieldForm = createFieldForm(options.userFields);
  const signUpForm = createSignUpForm(context, signInPages, fieldForm);
  return {
    sessions,
    signInPages,
    /** The pages that a sign-in can return to, below the account page. */
    paths: [
      ...['/address', '/details', '/providers', '/agents', '/keys', '/billing', '/export', '/sign-out'],
      ...[INVITATION_PAGE, IMPERSONATION_PAGE, OPERATOR_PAGE],
      ORGANIZATION_PAGE,
      '/organization',
    ],
    /** The pages whose query a sign-in keeps. */
    pagesWithQuery: [INVITATION_PAGE, IMPERSONATION_PAGE, OPERATOR_PAGE],
    /** The sections of the account page that lead to these pages. */
    sections: (): Section[] => sectionsOf(options, fieldForm),
    /** @param guard of the account pages, which these extend */
    plugin: (fastify: FastifyTypebox, guard: PersonGuard) =>
      userPagesPlugin(fastify, { ...context, signInPages, signUpForm, fieldForm, guard }),
  };
}

/** The sections of what is configured. */
function sectionsOf(
  { path, billing, providers, agents, keys, organizations }: UserPagesModuleOptions,
  { inputs }: FieldForm,
): Section[] {
  const section = (id: string, title: string, text: string, label: string): Section => ({
    id,
    href: `${path()}/${id}`,
    title: message(title),
    text: message(text),
    label: message(label),
  });
  const sections = [
    inputs.length > 0 &&
      section('details', 'user-details.title', 'user-details.explained', 'user-details.open'),
    billing && section('billing', 'user-billing.title', 'user-billing.explained', 'user-billing.open'),
    organizations &&
      section(
        'organization',
        'user-organizations.title',
        'user-organizations.explained',
        'user-organizations.open',
      ),
    section('address', 'user-address.title', 'user-address.explained', 'user-address.open'),
    providers &&
      section('providers', 'user-providers.title', 'user-providers.explained', 'user-providers.open'),
    agents && section('agents', 'user-agents.title', 'user-agents.explained', 'user-agents.open'),
    keys && section('keys', 'user-keys.title', 'user-keys.explained', 'user-keys.open'),
    section('export', 'user-export.title', 'user-export.explained', 'user-export.open'),
  ];
  return sections.filter((one) => one !== undefined && one !== false);
}
