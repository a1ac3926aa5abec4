import { canonicalEmail } from '../../core/http/mailboxes.js';
import type { RequestSource } from '../../core/http/routes.js';
import { Email, matchesSchema, OptionalName, toTimestamp } from '../../core/http/schemas.js';
import { MINUTE, SECOND } from '../../core/kernel/clock.js';
import { AppError, httpErrors } from '../../core/kernel/errors.js';
import type { Audit } from '../../core/ops/audit.js';
import { decideAndCommit, type Effect } from '../../core/ops/commit.js';
import { createSingleUse } from '../../core/ops/single-use.js';
import {
  createProviderSignIns,
  type ProviderSignInOptions,
  type Redemption,
  type SignInChecks,
} from '../../core/outbound/provider-sign-in.js';
import type { ReadAccount } from '../../core/server/contributions.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { UniqueViolation } from '../../core/storage/collection.js';
import { allOf } from '../../core/storage/pages.js';
import type { FederatedSignIn } from '../auth/sign-in/federated.js';
import type { SignedIn } from '../auth/sign-in/sign-in.js';
import { federationErrors } from './errors.js';
import type { ProviderIdentity } from './provider-responses.js';
import type { Provider } from './providers.js';
import type { IdentityView, StartQuery } from './schemas.js';
import { type IdentityDocument, identityCollection, identityId, usedTicketCollection } from './store.js';

/** The user of a connection. */
export interface ConnectedUser extends ReadAccount {
  /** The mail about a change, with the label of the provider. */
  identityMail(change: 'connected' | 'disconnected', provider: string, source: RequestSource): Effect;
}

interface PendingLogin extends Pick<SignInChecks, 'maxAge'> {
  provider: string;
}

/** Who has signed in at a provider. */
export interface Ticket {
  provider: string;
  identity: ProviderIdentity;
}

/** Sign-in with accounts of other providers. */
export type Federation = ReturnType<typeof createFederation>;

export interface FederationContext
  extends Pick<ModuleContext, 'store' | 'commit' | 'signInMethods' | 'clock' | 'random'> {
  audit: Pick<Audit, 'entry'>;
}

export interface FederationOptions extends Pick<ProviderSignInOptions, 'secrets' | 'publicUrl' | 'origins'> {
  providers: ReadonlyMap<string, Provider>;
  /** The provider whose people are the users, so that they stay connected. */
  directory?: string | undefined;
  accounts: FederatedSignIn;
  /** Null if there is no such user. */
  readUser(id: string): Promise<ConnectedUser | null>;
  /** The address of the callback of a provider. */
  callbackUrl(provider: string): string;
}

/** As for the routes that need a recent sign-in. */
const RECENT_SECONDS = (10 * MINUTE) / SECOND;

export function createFederation(context: FederationContext, options: FederationOptions) {
  const { providers, accounts, readUser } = options;
  const { store, commit, audit, clock } = context;
  const identities = identityCollection(store);
  const signIns = createProviderSignIns<PendingLogin, Ticket>({
    ...{ ...context, ...options },
    purpose: 'sign-ins at providers',
    errors: federationErrors,
    singleUse: createSingleUse(usedTicketCollection(store)),
  });

  const providerOf = (name: string): Provider => {
    const provider = providers.get(name);
    if (!provider) throw httpErrors.NOT_FOUND({ message: `There is no provider ${name}.` });
    return provider;
  };

  /** Uses a ticket once. @throws INVALID_TICKET */
  const redeem = <T>(given: Redemption, use: (ticket: Ticket) => Promise<T>): Promise<T> =>
    signIns.redeem(
      given,
      async (ticket) => {
        if (!providers.has(ticket.provider)) throw federationErrors.INVALID_TICKET();
        return use(ticket);
      },
      hasChallenge,
    );

  const documentOf = (userId: string, { provider, identity }: Ticket): IdentityDocument => ({
    id: identityId(identity),
    userId,
    provider,
    issuer: identity.issuer,
    subject: identity.subject,
    ...(identity.email !== undefined && { email: identity.email }),
    createdAt: clock.now(),
  });

  const labelOf = (provider: string): string => providers.get(provider)?.label ?? provider;

  const entry = (
    change: 'connected' | 'disconnected',
    { userId, provider }: IdentityDocument,
    { ip }: RequestSource,
  ) => audit.entry({ event: `identity.${change}`, subject: userId, ip, detail: provider });

  /** What a change is stored with. */
  const effectsOf = (
    change: 'connected' | 'disconnected',
    identity: IdentityDocument,
    user: ConnectedUser,
    source: RequestSource,
  ) => [
    user.nextRevision,
    user.identityMail(change, labelOf(identity.provider), source),
    entry(change, identity, source),
  ];

  const view = ({ id, provider, email, createdAt }: IdentityDocument): IdentityView => ({
    id,
    provider,
    label: labelOf(provider),
    email: email ?? null,
    connectedAt: toTimestamp(createdAt),
  });

  const ofUser = (userId: string) => allOf(identities, { where: { userId }, sort: 'createdAt' });

  /** A provider that is not configured any more is no way to sign in. */
  const signsIn = ({ provider }: IdentityDocument): boolean => providers.has(provider);

  /**
   * The user of a person, who is created with the first visit.
   * @param isCounted as for `SignIn.admit`
   * @throws ACCOUNT_EXISTS, PROVIDER_EMAIL_NOT_VERIFIED and those of `SignIn.admit`
   */
  const userOf = async (
    ticket: Ticket,
    source: RequestSource,
    { isCounted, ...more }: { locale?: string | undefined; isCounted: boolean },
  ): Promise<{ userId: string; isNew: boolean }> => {
    const { email, name, emailVerified } = ticket.identity;
    const known = () => identities.findOne({ id: identityId(ticket.identity) });
    const connected = await known();
    if (connected) return { userId: connected.userId, isNew: false };
    if (email === undefined || !emailVerified || !matchesSchema(email, Email))
      throw federationErrors.PROVIDER_EMAIL_NOT_VERIFIED();
    const person = { email, ...(name && matchesSchema(name, OptionalName) && { name }) };
    await accounts.admit(person, source, isCounted);
    const document = documentOf(accounts.newId(), ticket);
    const { userId } = document;
    const connection = [identities.inserting(document), entry('connected', document, source)];
    try {
      await accounts.create({ ...person, ...more, id: userId }, connection, source);
      return { userId, isNew: true };
    } catch (error) {
      if (!isTaken(error)) throw error;
      // Another request may have created the user in the meantime.
      const late = await known();
      if (late) return { userId: late.userId, isNew: false };
      throw federationErrors.ACCOUNT_EXISTS();
    }
  };

  return {
    providers: (): { name: string; label: string }[] =>
      [...providers.values()].map(({ name, label }) => ({ name, label })),

    /**
     * Begins a sign-in at a provider: where to send the browser, and the value of its cookie for the callback.
     * @throws NOT_FOUND, RETURN_NOT_ALLOWED, PROVIDER_UNAVAILABLE
     */
    async begin(
      name: string,
      { prompt, loginHint, ...destination }: StartQuery,
    ): Promise<{ url: string; id: string; cookie: string }> {
      const provider = providerOf(name);
      const begun = { provider: name, ...(prompt && { maxAge: RECENT_SECONDS }) };
      const { id, pending, cookie } = signIns.begin(destination, begun);
      const url = await provider.authorizationUrl(pending, options.callbackUrl(name), loginHint);
      return { url: url.href, id, cookie };
    },

    /**
     * Where to send the browser after the response of a provider: back to the application with a ticket or an error.
     * @throws LOGIN_EXPIRED, PROVIDER_UNAVAILABLE
     */
    async finish(name: string, response: URL, cookie: string | undefined): Promise<string> {
      const provider = providerOf(name);
      const begun = signIns.open(response, cookie);
      if (begun.provider !== name) throw federationErrors.LOGIN_EXPIRED();
      const identity = await provider.identify(response, begun);
      const proven = identity && { provider: name, identity };
      return signIns.addressAfter(response, begun, { proven, failure: 'login_failed' });
    },

    userOf,

    /**
     * Signs in, or registers, the owner of the ticket.
     * @throws INVALID_TICKET, ACCOUNT_EXISTS, PROVIDER_EMAIL_NOT_VERIFIED and those of `FederatedAccounts`
     */
    exchange: (given: Redemption, locale: string | undefined, source: RequestSource): Promise<SignedIn> =>
      redeem(given, async (ticket) => {
        const user = await userOf(ticket, source, { locale, isCounted: true });
        const signedIn = await accounts.signIn(user, ticket.identity.authenticatedAt, source);
        // The user was deleted in the meantime.
        if (!signedIn) throw federationErrors.INVALID_TICKET();
        return signedIn;
      }),

    /**
     * Connects the provider account of the ticket to a user.
     * @throws INVALID_TICKET, EMAIL_NOT_VERIFIED, IDENTITY_TAKEN, UNAUTHENTICATED
     */
    connect: (
      { id: userId, email, emailVerified }: { id: string; email: string; emailVerified: boolean },
      given: Redemption,
      source: RequestSource,
    ): Promise<IdentityView> =>
      redeem(given, async (ticket) => {
        const { identity } = ticket;
        const isProven =
          identity.emailVerified && identity.email !== undefined && canonicalEmail(identity.email) === email;
        // A registration with another person's address would keep access after the owner has reset the password.
        if (!emailVerified && !isProven) throw federationErrors.EMAIL_NOT_VERIFIED();
        const document = documentOf(userId, ticket);
        return decideAndCommit(commit, async () => {
          const user = await readUser(userId);
          if (!user) throw httpErrors.UNAUTHENTICATED();
          const existing = await identities.findOne({ id: document.id });
          if (existing && existing.userId !== userId) throw federationErrors.IDENTITY_TAKEN();
          if (existing) return { result: view(existing) };
          const parts = [identities.inserting(document), ...effectsOf('connected', document, user, source)];
          return { parts, result: view(document), repeatIfTaken: true };
        });
      }),

    list: async (userId: string): Promise<IdentityView[]> => (await ofUser(userId)).map(view),

    /** Whether the user can sign in with a provider. */
    isHeld: async (userId: string): Promise<boolean> => (await ofUser(userId)).some(signsIn),

    /** The last way to sign in stays, also if several are removed at the same time. @throws NOT_FOUND, LAST_LOGIN_METHOD */
    disconnect: (userId: string, id: string, source: RequestSource): Promise<void> =>
      decideAndCommit(commit, async () => {
        const user = await readUser(userId);
        const connected = await ofUser(userId);
        const identity = connected.find((one) => one.id === id);
        if (!user || !identity) throw httpErrors.NOT_FOUND();
        const others = connected.filter((one) => one !== identity);
        if (identity.provider === options.directory)
          throw federationErrors.LAST_LOGIN_METHOD({
            message: 'Its people are the users: it stays connected.',
          });
        if (!others.some(signsIn) && !(await context.signInMethods.hasOther('identity', userId)))
          throw federationErrors.LAST_LOGIN_METHOD();
        const effects = effectsOf('disconnected', identity, user, source);
        return { parts: [identities.deleting({ id, userId }), ...effects], result: undefined };
      }),
  };
}

/** Whether the sign-in continues with the error: the ticket is used then. */
const hasChallenge = (error: unknown): boolean =>
  error instanceof AppError && error.members?.['challenge'] !== undefined;

/** The address has an account, or the account of the provider has a user. */
const isTaken = (error: unknown): boolean =>
  error instanceof UniqueViolation || (error instanceof AppError && error.code === 'EMAIL_TAKEN');
