import type { Messages } from '../core/http/messages.js';
import { reportedSource } from '../core/http/request-details.js';
import type { RequestSource } from '../core/http/routes.js';
import { DAY } from '../core/kernel/clock.js';
import { createExpiryPurge } from '../core/ops/purge.js';
import type { Store } from '../core/storage/collection.js';
import { type ChangeSource, factorCollection, refuseMissingKey } from '../shared/factors/store.js';
import { contributePasskeys, passkeyCollection, viewOf } from '../shared/passkeys/store.js';
import { DIRECTORY } from './agents/schemas.js';
import type { SessionDependencies } from './auth/dependencies.js';
import { authErrors } from './auth/errors.js';
import type { AccountMails } from './auth/mails.js';
import type { AuthModule, UsersModule } from './auth/module.js';
import { SignInAnswer } from './auth/schemas.js';
import type { CodeAccountDependencies } from './auth/sign-in/code-accounts.js';
import { loginCodeCollection } from './auth/sign-in/login-codes.js';
import { isDisabled, type Users } from './auth/store.js';
import type { SaasBase } from './base.js';
import { contributeIdentities } from './login-providers/store.js';

/** The ways to sign in beside a password. Each is loaded if it is configured. */

/** Reads the accounts of users for changes of what gives access to them. */
export type ReadUser = ReturnType<typeof createReadUser>;

export const createReadUser = (users: Users, mails: AccountMails) => async (id: string) => {
  const user = await users.findOne({ id, deletingAt: null });
  if (!user) return null;
  const { sessionEpoch, signInRevision } = user;
  // What gives the account to a new owner increments the epoch.
  const asRead = { id, sessionEpoch, deletingAt: null, signInRevision: signInRevision ?? null };
  return {
    nextRevision: users.changing(asRead, { inc: { signInRevision: 1 } }),
    factorMail: (change: 'added' | 'removed', source: ChangeSource) =>
      mails.accessChanged(`second-factor-${change}`, user, reportedSource(source)),
    passkeyMail: (change: 'added' | 'removed', source: ChangeSource) =>
      mails.accessChanged(`passkey-${change}`, user, reportedSource(source)),
    identityMail: (change: 'connected' | 'disconnected', provider: string, source: RequestSource) =>
      mails.accessChanged(`identity-${change}`, user, source, { provider }),
    keyMail: (source: RequestSource) => mails.accessChanged('key-created', user, source),
    agentsMail: (change: 'connected' | 'disconnected', source: RequestSource) =>
      mails.accessChanged(`agents-${change}`, user, source),
  };
};

/** Whether a user has a passkey or a second factor, also without the options for them. */
export function createHasFactor(store: Store) {
  const [factors, passkeys] = [factorCollection(store), passkeyCollection(store)];
  return async (id: string): Promise<boolean> =>
    (await factors.findOne({ id }))?.confirmedAt !== undefined ||
    (await passkeys.findOne({ account: id })) !== null;
}

/** Finds the users for whom programs act. */
export type FindActiveUser = ReturnType<typeof createFindActiveUser>;

export const createFindActiveUser =
  ({ userDocuments, presentUser }: UsersModule, admits: SessionDependencies['admits']) =>
  async (id: string) => {
    const user = await userDocuments.findOne({ id });
    if (!user || user.deletingAt !== undefined) return null;
    if (isDisabled(user) || (await admits?.(id)) === false) throw authErrors.ACCOUNT_SUSPENDED();
    return presentUser(user);
  };

export type SaasSecondFactors = NonNullable<Awaited<ReturnType<typeof openSecondFactors>>>;

/** @throws ConfigurationError without a key, if users have second factors */
export async function openSecondFactors(
  { context, values }: SaasBase,
  { issuer, readUser }: { issuer(): string; readUser: ReadUser },
) {
  const { factorEncryptionKey: key, factorEncryptionKeyPrevious: previous } = values;
  if (key === undefined) {
    await refuseMissingKey(context.store, { program: 'saas-backend', variable: 'FACTOR_ENCRYPTION_KEY' });
    return undefined;
  }
  const { createFactorModule } = await import('../shared/factors/module.js');
  const { service } = createFactorModule(context, {
    keys: previous === undefined ? [key] : [key, previous],
    issuer,
    readAccount: readUser,
  });
  const isRequired = values.secondFactor === 'required';
  const graceMs = values.secondFactorGraceDays * DAY;
  return {
    service,
    /** For users, who must have one if the operator requires it. */
    ofUsers: {
      ...service,
      requiredFrom: async (userId: string) => (isRequired ? service.requiredFrom(userId, graceMs) : null),
    },
  };
}

/** Creates sign-in with mailed codes from the flows that it continues, if it is enabled. */
export async function openEmailLogin({ context, values }: SaasBase) {
  if (!values.emailLogin) return undefined;
  const { createEmailLogin } = await import('./auth/sign-in/email-login.js');
  const codes = loginCodeCollection(context.store);
  context.jobs.add('login-code-purge', createExpiryPurge(codes, context.clock));
  return (accounts: CodeAccountDependencies) => createEmailLogin(accounts, codes);
}

export async function openLoginProviders(
  { context, config, values, runtime, publicUrl, apiUrl, secrets, origins }: SaasBase,
  { auth, readUser, messages }: { auth: AuthModule; readUser: ReadUser; messages: Messages },
) {
  contributeIdentities(context);
  const { login: providers = {} } = values;
  const directory = runtime.agents && DIRECTORY;
  if (Object.keys(providers).length === 0 && !directory) return undefined;
  const { createLoginProvidersModule } = await import('./login-providers/module.js');
  return createLoginProvidersModule(context, {
    providers,
    directory,
    accounts: auth.service.federated,
    readUser,
    signInResponse: SignInAnswer,
    secrets,
    publicUrl,
    apiUrl,
    origins,
    allowHttp: !config.production,
    messages,
  });
}

export type SaasPasskeys = NonNullable<Awaited<ReturnType<typeof openPasskeys>>>;

export async function openPasskeys(
  { context, values, publicUrl, secrets, origins }: SaasBase,
  {
    auth,
    readUser,
    messages,
    name,
    hasUserFields,
  }: {
    auth: AuthModule;
    readUser: ReadUser;
    messages: Messages;
    name(): string;
    hasUserFields: boolean;
  },
) {
  contributePasskeys(context);
  if (!values.passkeys) return undefined;
  const [{ createPasskeyModule, readPasskeyScript }, { createPasskeyApi }] = await Promise.all([
    import('../shared/passkeys/module.js'),
    import('./passkeys/module.js'),
  ]);
  const { service } = createPasskeyModule(context, {
    address: publicUrl,
    name,
    origins,
    readAccount: readUser,
  });
  const { passkey, proveOwner } = auth.service;
  const { flows, plugin } = createPasskeyApi(context, {
    service,
    accounts: { ...passkey, proveOwner },
    viewOf,
    secrets,
    signInResponse: SignInAnswer,
    messages,
    hasUserFields,
  });
  return {
    service,
    flows,
    /** Reads the script of the pages that use them. */
    readScript: readPasskeyScript,
    plugin,
  };
}
