import { createHmac } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { type Messages, message } from '../core/http/messages.js';
import type { Pages } from '../core/http/pages.js';
import type { FastifyTypebox, Guard } from '../core/http/routes.js';
import { MINUTE } from '../core/kernel/clock.js';
import { AppError } from '../core/kernel/errors.js';
import type { AccountSources, Person } from '../shared/account-pages/service.js';
import type { SaasAgents } from './agents.js';
import type { AuthModule, UsersModule } from './auth/module.js';
import type { Identity } from './auth/sessions/sessions.js';
import type { SaasBase } from './base.js';
import type { BillingModule } from './billing/module.js';
import { formatAmount } from './billing/notifications.js';
import type { FederationModule } from './login-providers/module.js';
import type { SaasConfiguration } from './options.js';
import type { SettingsModule } from './settings/module.js';
import type { SaasPasskeys, SaasSecondFactors } from './sign-in-methods.js';

export interface AccountPageOptions {
  auth: AuthModule;
  users: UsersModule;
  billing: BillingModule;
  settings: SettingsModule;
  secondFactors: SaasSecondFactors | undefined;
  loginProviders: FederationModule | undefined;
  passkeys: SaasPasskeys | undefined;
  agents: Pick<SaasAgents, 'accounts'> | undefined;
  pages: Pages;
  messages: Messages;
}

/** The pages for users, below the path of the account page. */
export interface AccountPages {
  guards: Record<'person' | 'recent-person', Guard>;
  plugin(fastify: FastifyTypebox): Promise<void>;
}

/** Loads the pages for users if they are enabled. */
export async function openAccountPages(
  { context, values, publicUrl, mountedAt, accountAddress, secrets, origins }: SaasBase,
  options: AccountPageOptions,
): Promise<AccountPages | undefined> {
  const { auth, billing, settings, loginProviders, passkeys, messages, pages } = options;
  if (!values.accountPages) return undefined;
  const [{ createAccountModule }, { createUserPagesModule }] = await Promise.all([
    import('../shared/account-pages/module.js'),
    import('./pages/module.js'),
  ]);
  // A proxy takes the path of the public address off.
  const below = () => new URL(publicUrl()).pathname.replace(/\/$/, '');
  const path = () => below() + accountAddress;
  const script = passkeys?.readScript() ?? '';
  const identities = new WeakMap<object, Identity>();
  const identityOf = (key: Person | FastifyRequest): Identity => {
    const identity = identities.get(key);
    if (!identity) throw new Error('No guard of the account pages has admitted the request.');
    return identity;
  };

  const userPages = createUserPagesModule(context, {
    accounts: auth.service,
    providers: loginProviders?.service,
    agents: options.agents?.accounts,
    passkeys: passkeys && { ...passkeys.flows, script },
    billing: values.paymentSecretKey === undefined ? undefined : billing,
    formatAmount,
    sessionCookie: auth.sessionCookie,
    refreshTtl: values.refreshTokenTtl,
    origins,
    secrets,
    identityOf,
    pages,
    messages,
    path,
    publicUrl,
    apiPath: () => below() + mountedAt(),
    registrationAllowed: settings.registrationAllowed,
    sendExport: (request, reply, userId) =>
      auth.sendExport(
        request,
        reply.header('content-disposition', 'attachment; filename="account.json"'),
        userId,
      ),
  });

  const account = createAccountModule(context, {
    path,
    pages,
    signOutHref: () => `${path()}/sign-out`,
    hasAccountPages: true,
    // As for the routes of the API that need a recent sign-in.
    maxAuthenticationAge: 10 * MINUTE,
    furtherPages: userPages.paths,
    handleLabel: message('user-address.label'),
    sections: userPages.sections,
    sources: sourcesOf(options, identityOf, script),
    signIn: {
      async userOf(request, reply) {
        const found = await userPages.sessions.find(request, reply);
        if (!found) return null;
        const { identity, hasPassword } = found;
        const { user, session } = identity;
        const principal = {
          id: user.id,
          handle: user.email,
          name: user.name,
          kind: 'human' as const,
          ...(!hasPassword && { passkeyOnly: true as const }),
        };
        identities.set(principal, identity).set(request, identity);
        return {
          principal,
          session: { id: session.id, authTime: Date.parse(session.authenticatedAt) },
          token: formSecretOf(values, session.id),
        };
      },
      async sendSignIn(_request, reply, page, email = '') {
        return pages.send(reply.code(401), await userPages.signInPages.signIn(path() + page, { email }));
      },
      forgetSession: userPages.sessions.forget,
    },
  });

  return {
    guards: account.guards,
    async plugin(fastify) {
      await fastify.register(account.plugin);
      await fastify.register((inner: FastifyTypebox) => userPages.plugin(inner, account.guard));
    },
  };
}

/** Binds the tokens of forms to a session, whose ID is not secret. */
const formSecretOf = ({ jwtRefreshSecret }: SaasConfiguration, sessionId: string): string =>
  createHmac('sha256', jwtRefreshSecret).update(`forms of ${sessionId}`).digest('base64url');

/** Null for these errors. */
const nullFor =
  (...codes: string[]) =>
  (error: unknown): null => {
    if (error instanceof AppError && codes.includes(error.code)) return null;
    throw error;
  };

/** What the account pages show and change. */
function sourcesOf(
  { auth, users, secondFactors, passkeys }: AccountPageOptions,
  identityOf: (person: Person) => Identity,
  script: string,
): AccountSources {
  const { service } = auth;
  const done = () => true;
  const wrong = nullFor('INVALID_CREDENTIALS', 'VALIDATION_ERROR');
  const passwordOf = ({ passkeyOnly }: Person, password: string) => (passkeyOnly ? undefined : password);

  return {
    people: {
      async provePassword(person, password, source) {
        const given = passwordOf(person, password);
        return service.proveOwner(identityOf(person), given, source).then(() => person, wrong);
      },
      async changePassword(person, { current, chosen }, _session, source) {
        const given = { currentPassword: current, newPassword: chosen };
        const changed = service.changePassword(identityOf(person), given, source);
        return (await changed.then(done, nullFor('INVALID_CREDENTIALS'))) ?? false;
      },
      keepsSession: true,
      reservesHandles: false,
      async rename({ id }, name) {
        await users.directory.rename(id, name);
      },
      async delete(person, password, source) {
        const deleted = service.deleteAccount(identityOf(person), passwordOf(person, password), source);
        return (await deleted.then(done, wrong)) ?? false;
      },
      async isDeleted(id) {
        const user = await users.users.findOne({ id });
        return user === null || user.deletingAt !== undefined;
      },
    },
    sessions: {
      async list({ id }, session) {
        const listed = await service.listSessions({ user: { id }, session });
        return listed.map(({ authenticatedAt, ...one }) => ({
          ...one,
          authTime: Date.parse(authenticatedAt),
        }));
      },
      async end({ id }, sid, source) {
        await service.revokeSession({ user: { id } }, sid, source).catch(nullFor('NOT_FOUND'));
      },
      endOthers: ({ id: userId }, { id }, source) => service.endOthers({ userId, id }, source),
    },
    verification: {
      isDue: (person) => !identityOf(person).user.emailVerified,
      async sendAgain(id, source) {
        const user = await users.users.findOne({ id });
        if (!user || user.emailVerified) return false;
        await service.resendVerification(user.email, source);
        return true;
      },
    },
    factors: secondFactors && {
      ...secondFactors.option.service,
      requiredFrom: ({ id }) => secondFactors.option.service.requiredFrom(id),
    },
    passkeys: passkeys && {
      ...passkeys.service,
      script,
      isOpenTo: (person) => identityOf(person).user.emailVerified,
      remove: (id, passkey, source, { keepsOne }) =>
        passkeys.service.remove(id, passkey, source, {
          keepsOne,
          hasOtherLogin: () => passkeys.hasOtherLogin(id),
        }),
    },
    // The deletion of an account deletes everything.
    forget: async () => undefined,
  };
}
