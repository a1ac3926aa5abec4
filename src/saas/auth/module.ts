import { type PublicUrl, withLeadingSlash } from '../../core/config/public-url.js';
import { type Cookie, createCookie } from '../../core/http/cookies.js';
import type { Messages } from '../../core/http/messages.js';
import type { Pages } from '../../core/http/pages.js';
import type { ReportedSource } from '../../core/http/request-details.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import type { SubscriptionSummary } from '../../core/http/schemas.js';
import type { ListedAudit } from '../../core/ops/audit.js';
import type { Announce, Emit } from '../../core/ops/events.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { AccountDeletionHooks, AuthDependencies } from './dependencies.js';
import type { AuthEvents } from './events.js';
import type { Hooks } from './hooks.js';
import { createForeignHashes, type ForeignHashes, foreignHashCollection } from './import/foreign-hashes.js';
import { type ImportOptions, type ImportReport, importUsers } from './import/import.js';
import { type AccountMails, createAccountMails, type Outbox } from './mails.js';
import { authPlugin } from './plugin.js';
import type { AuthConfiguration } from './schemas.js';
import { type AuthService, createAuthService } from './service.js';
import { type Activity, activityCollection, createActivity } from './sessions/activity.js';
import { keepRefreshTokensInCookies } from './sessions/browser-sessions.js';
import type { registerSessionTokenKinds, TokenKind } from './sessions/jwt.js';
import { createSessionTokens } from './sessions/tokens.js';
import type { EmailLoginModule } from './sign-in/email-login-module.js';
import { createChallenges, type SecondFactors } from './sign-in/second-factor.js';
import {
  type PresentUser,
  type ProfileMark,
  type Sessions,
  sessionCollection,
  toUserView,
  type Users,
} from './store.js';
import {
  type AccountExportDependencies,
  createAccountExport,
  createSendExport,
  type ExportOptions,
  type SendExport,
} from './users/export.js';
import { createSuspension, type Suspension } from './users/suspension.js';
import { createUserLists, type UserLists } from './users/user-lists.js';
import { createUserDirectory, type UserDirectory } from './users/users.js';

/** Users, without sessions and HTTP: what the other domains and the command line need. */
export interface UsersModule {
  users: Users;
  directory: UserDirectory;
  lists: UserLists;
  suspension: Suspension;
  foreignHashes: ForeignHashes;
  presentUser: PresentUser;
  profileMark: ProfileMark;
  import(input: AsyncIterable<Uint8Array>, options: ImportOptions): Promise<ImportReport>;
}

export interface UsersModuleOptions {
  users: Users;
  /** Returns the subscription of a user, which is part of the public representation. */
  summaryOf(user: Parameters<PresentUser>[0]): SubscriptionSummary;
  siteName(): Promise<string>;
  /** Whether changes of addresses and names are marked for another system. Default: false. */
  marksProfileChanges?: boolean;
  announceEvent: Announce<AuthEvents>;
}

export function createUsersModule(
  context: ModuleContext,
  { users, summaryOf, siteName, marksProfileChanges = false, announceEvent }: UsersModuleOptions,
): UsersModule {
  const { store, passwords, clock } = context;
  const presentUser: PresentUser = (user) => toUserView(user, summaryOf(user));
  const documents = foreignHashCollection(store);
  const foreignHashes = createForeignHashes({ documents, users, passwords, clock });
  const profileMark = () => (marksProfileChanges ? { profileChangedAt: clock.now() } : {});
  const dependencies = {
    ...{ ...context, users, presentUser, siteName, foreignHashes, profileMark, announceEvent },
  };
  const directory = createUserDirectory(dependencies);
  context.jobs.add('foreign-hashes', foreignHashes.reconcileJob);
  return {
    users,
    directory,
    lists: createUserLists(users, directory.toManagedUser),
    suspension: createSuspension({
      ...context,
      users,
      announceEvent,
      toManagedUser: directory.toManagedUser,
    }),
    foreignHashes,
    presentUser,
    profileMark,
    import: (input, options) => importUsers(input, options, dependencies),
  };
}

/** Registration, login, sessions and account management. */
export interface AuthModule {
  service: AuthService;
  sessions: Sessions;
  /** The export of an account, for the operator. */
  exportAccount: ExportOptions['exportAccount'];
  /** The same for the user, as a limited stream. */
  sendExport: SendExport;
  /** The cookie of sessions in browsers. */
  sessionCookie: Cookie;
  /** For the operator; its job is not scheduled. */
  activity: Activity;
  /** Enqueues the mail about a change of the second factor. */
  announceFactor(
    userId: string,
    change: Parameters<AccountMails['secondFactorChanged']>[1],
    source: ReportedSource,
  ): Promise<void>;
  /** Enqueues the mail about a new or removed passkey. */
  announcePasskey(
    userId: string,
    change: Parameters<AccountMails['passkeyChanged']>[1],
    source: ReportedSource,
  ): Promise<void>;
  /** Enqueues the mail about access of agents. */
  announceAgents(
    userId: string,
    change: Parameters<AccountMails['agentsChanged']>[1],
    source: ReportedSource,
  ): Promise<void>;
  /** Enqueues the mail about a provider to sign in with. */
  announceIdentity(
    userId: string,
    change: Parameters<AccountMails['identityChanged']>[1],
    source: ReportedSource,
  ): Promise<void>;
  /** Lets clients keep refresh tokens in cookies, on the routes that are registered after this. */
  useSessionCookies(fastify: FastifyTypebox): void;
  plugin(fastify: FastifyTypebox): Promise<void>;
}

export interface AuthModuleOptions {
  config: AuthConfiguration;
  tokenKinds: Awaited<ReturnType<typeof registerSessionTokenKinds>>;
  users: UsersModule;
  outbox: Outbox;
  /** Called before and after an account is deleted. */
  deletionHooks: AccountDeletionHooks;
  removeOtherLogins?: AuthDependencies['removeOtherLogins'];
  /** What the other domains store about a user, by the name of its section in the export. */
  exportSections: AccountExportDependencies['sections'];
  registrationAllowed(): Promise<boolean>;
  siteName(): Promise<string>;
  /** Called after an address has changed, so that other systems receive it soon. */
  profileChanged(): void;
  emit: Emit<AuthEvents>;
  announceEvent: Announce<AuthEvents>;
  /** Absent if no encryption key is configured. */
  secondFactor?: { service: SecondFactors; challengeTokens: TokenKind } | undefined;
  /** Absent if sign-in by e-mail is not enabled. */
  emailLogin?: EmailLoginModule | undefined;
  /** Absent without the option. */
  hooks?: Hooks | undefined;
  publicUrl: PublicUrl;
  /** The origins of pages that may use session cookies, beside that of the public address. */
  origins: readonly string[];
  /** The public path under which the pages are mounted. */
  mountedAt(): string;
  pages: Pages;
  messages: Pick<Messages, 'negotiate'>;
}

export function createAuthModule(
  context: ModuleContext<ListedAudit>,
  options: AuthModuleOptions,
): AuthModule {
  const { store, throttle, jobs, clock } = context;
  const {
    config,
    tokenKinds,
    users: usersModule,
    publicUrl,
    mountedAt,
    pages,
    messages,
    secondFactor,
    emailLogin,
  } = options;
  const { users, foreignHashes, presentUser, profileMark } = usersModule;
  const sessions = sessionCollection(store);
  const pageUrl = (configured: string | undefined, own: string) => () =>
    publicUrl.get() + (configured === undefined ? `${mountedAt()}${own}` : withLeadingSlash(configured));

  const mails = createAccountMails({
    outbox: options.outbox,
    pages: {
      reset: pageUrl(config.resetUrlRelative, '/auth/reset-password'),
      verify: pageUrl(config.verifyUrlRelative, '/auth/verify-email'),
      unlock: pageUrl(undefined, '/auth/unlock'),
      login:
        config.emailLoginUrlRelative === undefined ? undefined : pageUrl(config.emailLoginUrlRelative, ''),
    },
    clock,
  });

  const service = createAuthService({
    ...context,
    users,
    sessions,
    foreignHashes,
    presentUser,
    profileMark,
    tokens: createSessionTokens({
      ...context,
      access: tokenKinds.accessTokens,
      refresh: tokenKinds.refreshTokens,
      accessTtl: config.accessTokenTtl,
      issuer: publicUrl.get,
    }),
    mails,
    deletionHooks: options.deletionHooks,
    ...(options.removeOtherLogins && { removeOtherLogins: options.removeOtherLogins }),
    registrationAllowed: options.registrationAllowed,
    siteName: options.siteName,
    profileChanged: options.profileChanged,
    emit: options.emit,
    announceEvent: options.announceEvent,
    hooks: options.hooks,
    secondFactors: secondFactor?.service,
    challenges:
      secondFactor &&
      createChallenges({ tokens: secondFactor.challengeTokens, issuer: publicUrl.get, clock }),
    createEmailLogin: emailLogin?.create,
    verificationRequired: config.requireEmailVerification,
    refreshTtl: config.refreshTokenTtl,
    refreshReuseWindow: config.refreshTokenReuseWindow,
    sessionMaxAge: config.sessionMaxAge,
  });
  const { exportAccount } = createAccountExport({
    ...context,
    users,
    sessions,
    presentUser,
    sections: options.exportSections,
  });

  const sendExport = createSendExport({ exportAccount, throttle });
  const sessionCookie = createCookie('saas-session', publicUrl.get);

  jobs.add('account-deletion', service.deletionJob);
  jobs.add('session-purge', createExpiryPurge(sessions, clock));

  return {
    service,
    sessions,
    exportAccount,
    sendExport,
    sessionCookie,
    async announceFactor(userId, change, source) {
      const user = await users.findOne({ id: userId });
      if (user) await mails.secondFactorChanged(user, change, source);
    },
    async announcePasskey(userId, change, source) {
      const user = await users.findOne({ id: userId });
      if (user) await mails.passkeyChanged(user, change, source);
    },
    async announceAgents(userId, change, source) {
      const user = await users.findOne({ id: userId });
      if (user) await mails.agentsChanged(user, change, source);
    },
    async announceIdentity(userId, change, source) {
      const user = await users.findOne({ id: userId });
      if (user) await mails.identityChanged(user, change, source);
    },
    activity: createActivity({ activity: activityCollection(store), sessions, clock }),
    useSessionCookies(fastify) {
      keepRefreshTokensInCookies(fastify, {
        cookie: sessionCookie,
        refreshTtl: config.refreshTokenTtl,
        origins: () => [new URL(publicUrl.get()).origin, ...options.origins],
        endSession: service.endSession,
        backgroundTasks: context.backgroundTasks,
      });
    },
    async plugin(fastify) {
      await authPlugin(fastify, {
        auth: service,
        sendExport,
        pages,
        messages,
        secondFactors: secondFactor?.service,
        home: publicUrl.get,
      });
      if (service.emailLogin) await emailLogin?.plugin(fastify, service.emailLogin);
    },
  };
}
