import { withQuery } from '../../core/config/public-url.js';
import { canonicalEmail } from '../../core/http/mailboxes.js';
import { newSignInChecks, returnAddressOf } from '../../core/http/provider-sign-in.js';
import type { RequestSource } from '../../core/http/routes.js';
import { Email, matchesSchema, OptionalName, toTimestamp } from '../../core/http/schemas.js';
import { type Clock, MINUTE, SECOND } from '../../core/kernel/clock.js';
import { AppError, httpErrors } from '../../core/kernel/errors.js';
import type { Sealed } from '../../core/kernel/sealed.js';
import { newId, type Random, sha256 } from '../../core/kernel/secrets.js';
import type { Audit } from '../../core/ops/audit.js';
import type { CommitParts } from '../../core/ops/commit.js';
import { createRemovalMarks } from '../../core/ops/removal-marks.js';
import type { SingleUse } from '../../core/ops/single-use.js';
import { nullIfTaken } from '../../core/storage/collection.js';
import type { ChangeMails } from '../auth/mails.js';
import type { FederatedSignIn } from '../auth/sign-in/federated.js';
import type { SignedIn } from '../auth/sign-in/sign-in.js';
import { federationErrors } from './errors.js';
import type { ProviderIdentity } from './provider-responses.js';
import type { Provider } from './providers.js';
import type { IdentityView, StartQuery } from './schemas.js';
import { type Identities, type IdentityDocument, identityChanges } from './store.js';
import { LIFETIME_MS, type PendingLogin, type Ticket } from './tickets.js';

/** What the accounts of users do for a sign-in with a provider. */
export interface FederatedAccounts extends FederatedSignIn {
  /** The mail about a change. */
  announce: ChangeMails['identity'];
  /** Whether the user can sign in without a provider: by password, by e-mail or with a passkey that is not being removed. */
  hasOtherLogin(userId: string): Promise<boolean>;
}

/** Sign-in with accounts of other providers. */
export type Federation = ReturnType<typeof createFederation>;

export interface Redemption {
  ticket: string;
  codeVerifier: string;
}

export interface FederationDependencies {
  providers: ReadonlyMap<string, Provider>;
  identities: Identities;
  accounts: FederatedAccounts;
  logins: Sealed<PendingLogin>;
  tickets: Sealed<Ticket>;
  singleUse: SingleUse;
  /** The address of the callback of a provider. */
  callbackUrl(provider: string): string;
  publicUrl(): string;
  /** The origins of applications, beside that of the public address. */
  origins: readonly string[];
  commit: CommitParts;
  audit: Pick<Audit, 'record'>;
  clock: Clock;
  random: Random;
}

const MAX_IDENTITIES = 100;

/** As for the routes that need a recent sign-in. */
const RECENT_SECONDS = (10 * MINUTE) / SECOND;

export function createFederation(deps: FederationDependencies) {
  const { providers, identities, accounts, logins, tickets, publicUrl, audit, clock, random } = deps;

  const providerOf = (name: string): Provider => {
    const provider = providers.get(name);
    if (!provider) throw httpErrors.NOT_FOUND({ message: `There is no provider ${name}.` });
    return provider;
  };

  /** @throws RETURN_NOT_ALLOWED */
  const returnAddress = (returnTo: string): string => {
    const address = returnAddressOf(returnTo, { publicUrl: publicUrl(), origins: deps.origins });
    if (address === null) throw federationErrors.RETURN_NOT_ALLOWED();
    return address;
  };

  /** Uses a ticket once. @throws INVALID_TICKET */
  const redeem = async <T>(
    { ticket: text, codeVerifier }: Redemption,
    use: (ticket: Ticket) => Promise<T>,
  ): Promise<T> => {
    const ticket = tickets.open(text);
    if (!ticket || !providers.has(ticket.provider) || sha256(codeVerifier) !== ticket.codeChallenge)
      throw federationErrors.INVALID_TICKET();
    const once = { id: ticket.id, expiresAt: clock.now() + LIFETIME_MS };
    const used = await deps.singleUse.run(once, () => use(ticket), hasChallenge);
    if (used === null) throw federationErrors.INVALID_TICKET();
    return used;
  };

  const documentOf = (userId: string, { provider, identity }: Ticket): IdentityDocument => ({
    id: keyOf(identity),
    userId,
    provider,
    issuer: identity.issuer,
    subject: identity.subject,
    ...(identity.email !== undefined && { email: identity.email }),
    createdAt: clock.now(),
  });

  /**
   * Reserves the account of a provider for a user who is about to be created, so that it creates one at most. A request that
   * comes second, or after the end of the first one, continues with the same user. Returns the ID of the user.
   */
  const claim = async (document: IdentityDocument): Promise<string> => {
    const { id, userId } = document;
    const claimed = await identities.insert(document).then(() => true, nullIfTaken);
    return claimed ? userId : ((await identities.findOne({ id }))?.userId ?? userId);
  };

  const recordConnection = (userId: string, { provider }: Ticket, { ip }: RequestSource): Promise<void> =>
    audit.record({ event: 'identity.connected', subject: userId, ip, detail: provider });

  const labelOf = (provider: string): string => providers.get(provider)?.label ?? provider;

  const announce = async (
    kind: 'connected' | 'disconnected',
    document: IdentityDocument,
    source: RequestSource,
  ): Promise<void> => {
    const { userId, provider } = document;
    const change = { ...identityChanges.of(kind, userId, document), provider: labelOf(provider) };
    await deps.commit([await accounts.announce(change, userId, source)]);
  };

  const view = ({ id, provider, email, createdAt }: IdentityDocument): IdentityView => ({
    id,
    provider,
    label: labelOf(provider),
    email: email ?? null,
    connectedAt: toTimestamp(createdAt),
  });

  const marks = createRemovalMarks(identities, random);

  const ofUser = async (userId: string): Promise<IdentityDocument[]> => {
    const { items } = await identities.page({ where: { userId }, sort: 'createdAt', limit: MAX_IDENTITIES });
    return items;
  };

  /**
   * Whether a provider is connected to the user after the removals that have begun.
   * A provider that is not configured any more is no way to sign in.
   */
  const keepsOne = async (userId: string): Promise<boolean> =>
    (await ofUser(userId)).some(({ leaving, provider }) => leaving === undefined && providers.has(provider));

  return {
    providers: (): { name: string; label: string }[] =>
      [...providers.values()].map(({ name, label }) => ({ name, label })),

    /**
     * Begins a sign-in at a provider: where to send the browser, and the value of its cookie for the callback.
     * @throws NOT_FOUND, RETURN_NOT_ALLOWED, PROVIDER_UNAVAILABLE
     */
    async begin(
      name: string,
      { returnTo, codeChallenge, prompt, loginHint }: StartQuery,
    ): Promise<{ url: string; id: string; cookie: string }> {
      const provider = providerOf(name);
      const { id, checks: secrets } = newSignInChecks(clock, random);
      const checks = { ...secrets, ...(prompt && { maxAge: RECENT_SECONDS }) };
      const begun = { ...checks, provider: name, returnTo: returnAddress(returnTo), codeChallenge };
      const url = await provider.authorizationUrl(checks, deps.callbackUrl(name), loginHint);
      return { url: url.href, id, cookie: logins.seal(begun) };
    },

    /**
     * Where to send the browser after the response of a provider: back to the application with a ticket or an error.
     * @throws LOGIN_EXPIRED, PROVIDER_UNAVAILABLE
     */
    async finish(name: string, response: URL, cookie: string | undefined): Promise<string> {
      const provider = providerOf(name);
      const begun = cookie === undefined ? null : logins.open(cookie);
      if (!begun || begun.provider !== name || begun.state !== response.searchParams.get('state'))
        throw federationErrors.LOGIN_EXPIRED();
      const { returnTo, codeChallenge } = begun;
      const identity = await provider.identify(response, begun);
      if (!identity) {
        const isRefused = response.searchParams.get('error') === 'access_denied';
        return withQuery(returnTo, `error=${isRefused ? 'access_denied' : 'login_failed'}`);
      }
      const ticket = { id: newId('', clock, random), provider: name, identity, codeChallenge };
      return withQuery(returnTo, `ticket=${tickets.seal(ticket)}`);
    },

    /**
     * Signs in, or registers, the owner of the ticket.
     * @throws INVALID_TICKET, ACCOUNT_EXISTS, PROVIDER_EMAIL_NOT_VERIFIED and those of `FederatedAccounts`
     */
    exchange: (given: Redemption, locale: string | undefined, source: RequestSource): Promise<SignedIn> =>
      redeem(given, async (ticket) => {
        const { identity } = ticket;
        const { authenticatedAt } = identity;
        const id = keyOf(identity);
        const known = await identities.findOne({ id });
        // The use ends a removal that has not been completed.
        if (known?.leaving !== undefined) await marks.clear(id, known.leaving);
        const signedIn = known && (await accounts.signIn(known.userId, authenticatedAt, source));
        if (signedIn) return signedIn;
        const { email, name } = identity;
        if (email === undefined || !identity.emailVerified || !matchesSchema(email, Email))
          throw federationErrors.PROVIDER_EMAIL_NOT_VERIFIED();
        const person = { email, ...(name && matchesSchema(name, OptionalName) && { name }) };
        await accounts.admit(person, source);
        const userId = known?.userId ?? (await claim(documentOf(accounts.newId(), ticket)));
        try {
          const user = { ...person, id: userId, locale, authenticatedAt };
          const registered = await accounts.register(user, source);
          await recordConnection(userId, ticket, source);
          return registered;
        } catch (error) {
          // Another request may have created the same user in the meantime.
          const late = isEmailTaken(error) && (await accounts.signIn(userId, authenticatedAt, source));
          if (late) return late;
          // After an outage of the store, the user may exist.
          if (error instanceof AppError) await identities.deleteOne({ id, userId });
          throw isEmailTaken(error) ? federationErrors.ACCOUNT_EXISTS() : error;
        }
      }),

    /**
     * Connects the provider account of the ticket to a user.
     * @throws INVALID_TICKET, EMAIL_NOT_VERIFIED, IDENTITY_TAKEN
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
        const existing = await identities.findOne({ id: document.id });
        const inserted = existing
          ? null
          : await identities.insert(document).then(() => document, nullIfTaken);
        const found = inserted ?? existing ?? (await identities.findOne({ id: document.id }));
        if (found?.userId !== userId) throw federationErrors.IDENTITY_TAKEN();
        if (inserted) {
          await announce('connected', inserted, source);
          await recordConnection(userId, ticket, source);
        }
        return view(found);
      }),

    list: async (userId: string): Promise<IdentityView[]> => (await ofUser(userId)).map(view),

    keepsOne,

    /** The last way to sign in stays, also if several are removed at the same time. @throws NOT_FOUND, LAST_LOGIN_METHOD */
    async disconnect(userId: string, id: string, source: RequestSource) {
      for (;;) {
        const found = await identities.findOne({ id, userId });
        if (!found) throw httpErrors.NOT_FOUND();
        const leaving = await marks.set(found);
        if (leaving === null) continue;
        if (!(await keepsOne(userId)) && !(await accounts.hasOtherLogin(userId))) {
          await marks.clear(id, leaving);
          throw federationErrors.LAST_LOGIN_METHOD();
        }
        const removed = await identities.deleteOne({ id, userId, leaving });
        if (!removed) continue;
        await announce('disconnected', removed, source);
        const { provider: detail } = removed;
        await audit.record({ event: 'identity.disconnected', subject: userId, ip: source.ip, detail });
        return;
      }
    },
  };
}

const keyOf = ({ issuer, subject }: ProviderIdentity): string => sha256(JSON.stringify([issuer, subject]));

/** Whether the sign-in continues with the error: the ticket is used then. */
const hasChallenge = (error: unknown): boolean =>
  error instanceof AppError && error.members?.['challenge'] !== undefined;

const isEmailTaken = (error: unknown): boolean => (error as { code?: string }).code === 'EMAIL_TAKEN';
