import { createHmac } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import type { Identity } from '../core/http/identity.js';
import { longTime, message } from '../core/http/messages.js';
import type { Pages } from '../core/http/pages.js';
import type { FastifyTypebox } from '../core/http/routes.js';
import type { Impersonator } from '../core/http/schemas.js';
import { MINUTE } from '../core/kernel/clock.js';
import { AppError } from '../core/kernel/errors.js';
import type { ModuleContext } from '../core/server/module-context.js';
import { formTokensOf } from '../shared/account-pages/guard.js';
import type { AccountModuleOptions } from '../shared/account-pages/page.js';
import type { AccountSources, Person } from '../shared/account-pages/sources.js';
import type { SaasBase } from './base.js';
import { refuseImpersonator } from './guards.js';
import type { SaasModules } from './modules.js';
import type { SaasOperators } from './operators.js';
import type { UserPagesModule } from './pages/module.js';
import { settingsErrors } from './settings/errors.js';

/** The pages for users, below the path of the account page. */
export type AccountPages = NonNullable<Awaited<ReturnType<typeof openAccountPages>>>;

/** Loads the pages for users if they are enabled. */
export async function openAccountPages(base: SaasBase, modules: SaasModules) {
  const { context, values, publicUrl, mountedAt, below, accountHref: path, secrets, origins } = base;
  const { auth, billing, settings, loginProviders, agents, passkeys, keys, messages, pages } = modules;
  const { organizations, users, operators } = modules;
  if (!values.accountPages) return undefined;
  const [{ createAccountModule }, { createUserPagesModule }] = await Promise.all([
    import('../shared/account-pages/module.js'),
    import('./pages/module.js'),
  ]);
  const script = passkeys?.readScript() ?? '';
  /** The users and sessions of admitted requests. */
  const identities = new WeakMap<Person | FastifyRequest, Identity>();
  const identityOf = (key: Person | FastifyRequest): Identity => {
    const identity = identities.get(key);
    if (!identity) throw new Error('No guard of the account pages has admitted the request.');
    return identity;
  };

  const userPages = createUserPagesModule(context, {
    accounts: auth.service,
    providers: loginProviders?.service,
    agents: agents?.accounts,
    keys: keys?.service,
    passkeys: passkeys && { ...passkeys.flows, script },
    billing: values.paymentSecretKey === undefined ? undefined : billing,
    organizations,
    operators,
    async admitSignIn({ id }) {
      if ((await settings.service.current()).maintenanceMode && !(await operators.roleOf(id)))
        throw settingsErrors.MAINTENANCE();
    },
    userFields: users.userFields,
    changeProfile: users.directory.changeProfile,
    sessionCookie: auth.sessionCookie,
    origins,
    secrets,
    identityOf,
    pages,
    messages,
    path,
    publicUrl,
    apiPath: () => below() + mountedAt(),
    registrationAllowed: settings.registrationAllowed,
    sendExport(request, reply, userId) {
      reply.header('content-disposition', 'attachment; filename="account.json"');
      return auth.sendExport(request, reply, userId);
    },
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
    sources: sourcesOf(modules, identityOf, script),
    signIn: signInOf(userPages, context, {
      ...{ identities, pages, path, operators, secret: values.jwtRefreshSecret },
    }),
  });

  return {
    guards: account.guards,
    async plugin(fastify: FastifyTypebox): Promise<void> {
      await fastify.register(account.plugin);
      await fastify.register((inner: FastifyTypebox) => userPages.plugin(inner, account.guard));
    },
  };
}

interface SignInOptions {
  /** Gets the user and session of an admitted request. */
  identities: WeakMap<Person | FastifyRequest, Identity>;
  pages: Pages;
  operators: Pick<SaasOperators, 'protectFactors'>;
  path(): string;
  /** Binds the tokens of forms to a session, whose ID is not secret. */
  secret: string;
}

/** The sign-in of the account pages. */
function signInOf(
  { sessions, signInPages, pagesWithQuery }: UserPagesModule,
  { clock }: ModuleContext,
  { identities, pages, path, operators, secret }: SignInOptions,
): AccountModuleOptions['signIn'] {
  return {
    async userOf(request, reply) {
      const found = await sessions.find(request, reply);
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
      for (const key of [principal, request]) identities.set(key, identity);
      await operators.protectFactors(identity, request);
      const token = createHmac('sha256', secret).update(`forms of ${session.id}`).digest('base64url');
      const { impersonator } = session;
      if (impersonator) {
        const when = longTime(Date.parse(session.expiresAt));
        const text = message('user-impersonation.acting', {
          ...shownIn(impersonator),
          user: user.email,
          when,
        });
        const form = formTokensOf(token, clock).issue();
        pages.addToView(request, { impersonation: [{ text, action: `${path()}/sign-out`, form }] });
        refuseImpersonator(identity, request);
      }
      return { principal, session: { id: session.id, authTime: Date.parse(session.authenticatedAt) }, token };
    },
    async sendSignIn({ url }, reply, page, email = '') {
      // A link of a mail is opened again with its token, for example.
      const query = pagesWithQuery.includes(page) ? url.replace(/^[^?]*/, '') : '';
      return pages.send(reply.code(401), await signInPages.signIn(path() + page + query, { email }));
    },
    forgetSession: sessions.forget,
  };
}

const shownIn = ({ name, email, reason }: Impersonator) => ({ operator: name || email, reason });

/** Null for these errors. */
const nullFor =
  (...codes: string[]) =>
  (error: unknown): null => {
    if (error instanceof AppError && codes.includes(error.code)) return null;
    throw error;
  };

type IdentityOf = (person: Person) => Identity;

/** What the account pages show and change. */
function sourcesOf(modules: SaasModules, identityOf: IdentityOf, script: string): AccountSources {
  const { auth, users, secondFactors, passkeys } = modules;
  const { service } = auth;
  return {
    people: peopleOf(modules, identityOf),
    sessions: {
      async list({ id }, session) {
        const listed = await service.listSessions({ user: { id }, session });
        return listed.map(({ authenticatedAt, impersonator, ...one }) => ({
          ...one,
          authTime: Date.parse(impersonator ? one.createdAt : authenticatedAt),
          ...(impersonator && { device: message('account.session-of-operator', shownIn(impersonator)) }),
        }));
      },
      async end({ id }, sid, source) {
        await service.revokeSession(id, sid, { ip: source.ip }).catch(nullFor('NOT_FOUND'));
      },
      endOthers: ({ id: userId }, { id }, source) => service.endOthers({ userId, id }, source),
    },
    verification: {
      isDue: (person) => !identityOf(person).user.emailVerified,
      async sendAgain(id, source) {
        const user = await users.userDocuments.findOne({ id });
        if (!user || user.emailVerified) return false;
        await service.resendVerification(user.email, source);
        return true;
      },
    },
    factors: secondFactors && {
      ...secondFactors.ofUsers,
      requiredFrom: ({ id }) => secondFactors.ofUsers.requiredFrom(id),
    },
    passkeys: passkeys && {
      ...passkeys.service,
      script,
      isOpenTo: (person) => identityOf(person).user.emailVerified,
    },
  };
}

function peopleOf(
  { auth: { service }, users }: SaasModules,
  identityOf: IdentityOf,
): AccountSources['people'] {
  const done = () => true;
  const wrong = nullFor('INVALID_CREDENTIALS', 'VALIDATION_ERROR');
  const passwordOf = ({ passkeyOnly }: Person, password: string) => (passkeyOnly ? undefined : password);
  return {
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
      await users.directory.changeProfile(id, { name });
    },
    async delete(person, password, source) {
      const deleted = service.deleteAccount(identityOf(person), passwordOf(person, password), source);
      if (await deleted.then(done, wrong)) return true;
      const user = await users.userDocuments.findOne({ id: person.id });
      return user === null || user.deletingAt !== undefined;
    },
  };
}
