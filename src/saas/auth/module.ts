import { type PublicUrl, withLeadingSlash } from '../../core/config/public-url.js';
import type { Messages } from '../../core/http/messages.js';
import type { Pages } from '../../core/http/pages.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import type { SubscriptionSummary } from '../../core/http/schemas.js';
import type { ListedAudit } from '../../core/ops/audit.js';
import type { Effect } from '../../core/ops/commit.js';
import type { EventOf } from '../../core/ops/events.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { AuthDependencies, SecondFactors } from './dependencies.js';
import type { AuthEvents } from './events.js';
import type { Hooks } from './hooks.js';
import { createForeignHashes, foreignHashCollection } from './import/foreign-hashes.js';
import { type ImportOptions, type ImportReport, importUsers } from './import/import.js';
import { type AccountMails, type AccountOutbox, createAccountMails } from './mails.js';
import { type AuthPluginOptions, authPlugin } from './plugin.js';
import type { AuthConfiguration } from './schemas.js';
import { type AuthServiceOptions, createAuthService } from './service.js';
import { jwksPlugin } from './sessions/access-keys.js';
import { activityCollection, createActivity } from './sessions/activity.js';
import { createBrowserSessions, createSessionCookie, type PageRequest } from './sessions/browser-sessions.js';
import type { registerSessionTokenKinds } from './sessions/jwt.js';
import { createSessionTokens } from './sessions/tokens.js';
import { type PresentUser, type ProfileMark, sessionCollection, toUserView, type Users } from './store.js';
import { createAccountExport, createOperatedExport, createSendExport } from './users/export.js';
import { createUserFields, type UserFieldRules, type UserFields } from './users/fields.js';
import { createSetOperatorRole } from './users/operator-role.js';
import { createSetRoles } from './users/role-change.js';
import { createSuspension } from './users/suspension.js';
import { createUserLists } from './users/user-lists.js';
import { type CustomerOwners, createStoreUser, createUserDirectory } from './users/users.js';

/** Users, without sessions and HTTP: what the other domains and the command line need. */
export type UsersModule = ReturnType<typeof createUsersModule>;

export interface UsersModuleOptions {
  users: Users;
  /** Returns the subscription of a user, which is part of the public representation. */
  summaryOf(user: Parameters<PresentUser>[0]): SubscriptionSummary;
  siteName(): Promise<string>;
  /** For the commit of another address or name, which other systems shall receive: a mark, and what follows the commit. */
  profileMark: ProfileMark;
  profileChanged: Effect;
  customers: CustomerOwners;
  /** Whether a user has a passkey or a second factor. */
  hasFactor(id: string): Promise<boolean>;
  event: EventOf<AuthEvents>;
  /** Absent without the option. */
  userRoles?: readonly string[] | undefined;
  /** Absent without the option. */
  declaredFields?: UserFields | undefined;
}

export function createUsersModule(context: ModuleContext, options: UsersModuleOptions) {
  const { users, summaryOf, profileMark, profileChanged, userRoles, declaredFields } = options;
  const userFields = declaredFields && createUserFields(declaredFields);
  const presentUser: PresentUser = (user) => toUserView(user, summaryOf(user), userRoles, userFields);
  const documents = foreignHashCollection(context.store);
  const foreignHashes = createForeignHashes({ ...context, documents });
  const dependencies = { ...context, ...options, presentUser, foreignHashes, userFields };
  const newUsers = { ...dependencies, storeUser: createStoreUser(dependencies) };
  const directory = createUserDirectory(newUsers);
  context.accountData.add({ delete: foreignHashes.forget });
  context.metrics?.storeGauge({ name: 'users', help: 'Users; beyond 10,000 an estimate.' }, async () => [
    { labels: {}, value: (await users.estimate()).count },
  ]);
  return {
    userDocuments: users,
    directory,
    lists: createUserLists(users, directory.toManagedUser),
    suspension: createSuspension({ ...dependencies, toManagedUser: directory.toManagedUser }),
    userRoles,
    userFields,
    setRoles: createSetRoles({ ...dependencies, toManagedUser: directory.toManagedUser }),
    setOperatorRole: createSetOperatorRole(dependencies),
    foreignHashes,
    presentUser,
    profileMark,
    profileChanged,
    import: (input: AsyncIterable<Uint8Array>, how: ImportOptions): Promise<ImportReport> =>
      importUsers(input, how, newUsers),
  };
}

export interface AccountMailsModuleOptions {
  config: AuthConfiguration;
  outbox: AccountOutbox;
  publicUrl(): string;
  /** The public path under which the pages are mounted. */
  mountedAt(): string;
  userFields: UserFieldRules | undefined;
}

/** The mails about accounts. */
export function createAccountMailsModule(
  { clock }: ModuleContext,
  { config, outbox, publicUrl, mountedAt, userFields }: AccountMailsModuleOptions,
) {
  const pageUrl = (configured: string | undefined, own: string) => () =>
    publicUrl() + (configured === undefined ? `${mountedAt()}${own}` : withLeadingSlash(configured));
  const mails = createAccountMails({
    outbox,
    pages: {
      reset: pageUrl(config.resetUrlRelative, '/auth/reset-password'),
      verify: pageUrl(config.verifyUrlRelative, '/auth/verify-email'),
      unlock: pageUrl(undefined, '/auth/unlock'),
      login:
        config.emailLoginUrlRelative === undefined ? undefined : pageUrl(config.emailLoginUrlRelative, ''),
    },
    fieldValues: userFields?.mailValues,
    clock,
  });
  return { mails };
}

/** Registration, login, sessions and account management. */
export type AuthModule = ReturnType<typeof createAuthModule>;

export interface AuthModuleOptions extends Pick<AuthDependencies, 'registrationAllowed' | 'admits'> {
  config: AuthConfiguration;
  tokenKinds: Awaited<ReturnType<typeof registerSessionTokenKinds>>;
  users: UsersModule;
  mails: AccountMails;
  siteName(): Promise<string>;
  event: EventOf<AuthEvents>;
  /** The secrets that encrypt what a client keeps, the current one first. */
  secrets: readonly string[];
  /** Absent if no encryption key is configured. */
  secondFactors?: SecondFactors | undefined;
  /** Absent if sign-in by e-mail is not enabled. */
  createEmailLogin?: AuthServiceOptions['createEmailLogin'];
  /** Absent without the option. */
  hooks?: Hooks | undefined;
  publicUrl: PublicUrl;
  /** The origins of pages that may use session cookies, beside that of the public address. */
  origins: readonly string[];
  pages: Pages;
  messages: Messages;
}

export function createAuthModule(context: ModuleContext<ListedAudit>, options: AuthModuleOptions) {
  const { store, throttle, jobs, clock, signInMethods } = context;
  const { config, publicUrl, secondFactors, pages, messages } = options;
  const { userDocuments: users, presentUser } = options.users;
  const sessions = sessionCollection(store);
  const tokens = createSessionTokens({
    ...{ ...context, ...options.tokenKinds, ...config },
    issuer: publicUrl.get,
  });
  const service = createAuthService({
    ...{ ...context, ...options, ...options.users, users, sessions, tokens },
    verificationRequired: config.requireEmailVerification,
    impersonationRoles: config.impersonationRoles,
    refreshReuseWindow: config.refreshTokenReuseWindow,
  });
  const exportAccount = createAccountExport({ ...context, users, sessions, presentUser });
  const sendExport = createSendExport({ exportAccount, throttle });
  const sessionCookie = createSessionCookie(tokens, publicUrl.get, config.sessionMaxAge);
  const browserSessions = createBrowserSessions({
    cookie: sessionCookie,
    origins: () => [new URL(publicUrl.get()).origin, ...options.origins],
    endSession: service.endSession,
    readSession: service.readSession,
    backgroundTasks: context.backgroundTasks,
  });

  if (service.emailLogin) signInMethods.add('email', { isHeld: async () => true });
  signInMethods.add('password', { isHeld: service.federated.hasPassword });
  jobs.add('account-deletion', service.deletionJob);
  jobs.add('session-purge', createExpiryPurge(sessions, clock));

  return {
    service,
    sessions,
    /** The export of an account, for the operator. */
    exportAccount: createOperatedExport({ ...context, users, exportAccount }),
    /** The same for the user, as a limited stream. */
    sendExport,
    /** The cookie of sessions in browsers. */
    sessionCookie,
    /** For the operator; its job is not scheduled. */
    activity: createActivity({ activity: activityCollection(store), sessions, clock }),
    /** Lets clients keep refresh tokens in cookies, on the routes that are registered after this. */
    useSessionCookies: browserSessions.keepRefreshTokens,
    /** Who has sent a request to a page of the application: by the access token, or else by the cookie. */
    visitorOf: ({ method, headers }: PageRequest) =>
      headers.authorization === undefined
        ? browserSessions.ofPage({ method, headers })
        : service.readSession({ authorization: headers.authorization, cookie: undefined }),
    async plugin(fastify: FastifyTypebox, connected: Pick<AuthPluginOptions, 'describeSession'>) {
      const home = publicUrl.get;
      await authPlugin(fastify, {
        ...{ auth: service, sendExport, pages, messages, secondFactors, home },
        ...{ cookieIn: browserSessions.tokenIn, browserSession: browserSessions.ofPage, ...connected },
        hasUserFields: options.users.userFields !== undefined,
      });
      const { jwks } = options.tokenKinds;
      if (jwks.length > 0) await fastify.register(jwksPlugin, { jwks });
    },
  };
}
