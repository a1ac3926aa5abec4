import { createSealedCookie } from '../../core/http/cookies.js';
import { message } from '../../core/http/messages.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { PersonGuard } from '../../shared/account-pages/guard.js';
import type { Section } from '../../shared/account-pages/page.js';
import { type UserPagesPluginOptions, userPagesPlugin } from './plugin.js';
import { createPageSessions, destinationOf, type PageSessionOptions, STATE_LIFETIME_MS } from './session.js';
import { createSignInPages } from './sign-in-pages.js';
import { createSignUpForm } from './sign-up.js';

/** The pages for users of saas-backend: sign-in, sign-up, address, connected providers and billing. */
export type UserPagesModule = ReturnType<typeof createUserPagesModule>;

type Given = Omit<
  UserPagesPluginOptions,
  | 'sessions'
  | 'signInPages'
  | 'signUpForm'
  | 'guard'
  | 'destinationOf'
  | 'loginCookie'
  | 'agentCookie'
  | 'codeCookie'
  | 'random'
>;

export interface UserPagesModuleOptions extends Given, Pick<PageSessionOptions, 'refreshTtl'> {
  /** The cookie of the API with the refresh token. */
  sessionCookie: PageSessionOptions['cookie'];
  /** The origins of pages at which a user may continue, beside that of the public address. */
  origins: readonly string[];
  /** The secrets that encrypt what the browser keeps, the current one first. */
  secrets: readonly string[];
}

export function createUserPagesModule(
  { clock, random }: Pick<ModuleContext, 'clock' | 'random'>,
  { sessionCookie, refreshTtl, origins, secrets, ...options }: UserPagesModuleOptions,
) {
  const { accounts, publicUrl, path } = options;
  const sessions = createPageSessions({ accounts, cookie: sessionCookie, refreshTtl });
  const resolve = (returnTo: string | undefined) =>
    destinationOf(returnTo, { publicUrl: publicUrl(), origins, fallback: path() });
  const signInPages = createSignInPages({ ...options, sessions, destinationOf: resolve });
  const signUpForm = createSignUpForm({
    ...options,
    signInPages,
    hasPasskeys: options.passkeys !== undefined,
    destinationOf: resolve,
  });
  const cookieOf = <T extends object>(name: string) =>
    createSealedCookie<T>(name, publicUrl, { keys: secrets, lifetimeMs: STATE_LIFETIME_MS, clock, random });
  return {
    sessions,
    signInPages,
    /** The pages that a sign-in can return to, below the account page. */
    paths: ['/address', '/providers', '/agents', '/billing', '/export', '/sign-out'],
    /** The sections of the account page that lead to these pages. */
    sections: (): Section[] => sectionsOf(options),
    /** @param guard of the account pages, which these extend */
    plugin: (fastify: FastifyTypebox, guard: PersonGuard) =>
      userPagesPlugin(fastify, {
        ...options,
        sessions,
        signInPages,
        signUpForm,
        guard,
        destinationOf: resolve,
        loginCookie: cookieOf('saas-page-login'),
        agentCookie: cookieOf('saas-page-agents'),
        codeCookie: cookieOf('saas-page-code'),
        random,
      }),
  };
}

/** The sections of what is configured. */
function sectionsOf({
  path,
  billing,
  providers,
  agents,
}: Pick<Given, 'path' | 'billing' | 'providers' | 'agents'>): Section[] {
  const section = (id: string, text: Omit<Section, 'id' | 'href'>): Section => ({
    id,
    href: `${path()}/${id}`,
    ...text,
  });
  const sections: (Section | undefined)[] = [
    billing &&
      section('billing', {
        title: message('user-billing.title'),
        text: message('user-billing.explained'),
        label: message('user-billing.open'),
      }),
    section('address', {
      title: message('user-address.title'),
      text: message('user-address.explained'),
      label: message('user-address.open'),
    }),
    providers &&
      section('providers', {
        title: message('user-providers.title'),
        text: message('user-providers.explained'),
        label: message('user-providers.open'),
      }),
    agents &&
      section('agents', {
        title: message('user-agents.title'),
        text: message('user-agents.explained'),
        label: message('user-agents.open'),
      }),
    section('export', {
      title: message('user-export.title'),
      text: message('user-export.explained'),
      label: message('user-export.open'),
    }),
  ];
  return sections.filter((one) => one !== undefined);
}
