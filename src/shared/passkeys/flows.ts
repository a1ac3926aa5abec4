import type { RequestSource } from '../../core/http/routes.js';
import { type Session, toTimestamp, toTimestampOrNull, type User } from '../../core/http/schemas.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { Sealed } from '../../core/kernel/sealed.js';
import type { CommitPart } from '../../core/ops/commit.js';
import { UniqueViolation } from '../../core/storage/collection.js';
import { passkeyErrors } from './errors.js';
import type { PasskeyView } from './schemas.js';
import type { PasskeyService } from './service.js';
import type { PasskeyDocument } from './store.js';

/** The signed-in user of a request, and the session. */
export interface Holder {
  user: User;
  session: Session;
}

/** What the accounts of users do for passkeys. `U` is the document of a user, `S` the response to a sign-in. */
export interface PasskeyAccounts<U, S> {
  find(userId: string): Promise<U | null>;
  /** @throws ACCOUNT_SUSPENDED, EMAIL_NOT_VERIFIED, INVALID_TOKEN */
  signIn(user: U, verificationToken: string | undefined, source: RequestSource): Promise<S>;
  /**
   * Creates an account without a password, in one commit with its passkey; `null` if the address must be verified first.
   * @throws REGISTRATION_DISABLED, EMAIL_TAKEN, RATE_LIMITED; UniqueViolation for the passkey
   */
  register(
    given: { id: string; email: string; name?: string | undefined; locale: string | undefined },
    passkey: readonly CommitPart[],
    source: RequestSource,
  ): Promise<S | null>;
  newId(): string;
  /** @throws UNAUTHENTICATED if the session has ended since the request was authenticated */
  ensureCurrent(identity: Holder): Promise<void>;
  /** @throws INVALID_CREDENTIALS, REAUTHENTICATION_REQUIRED, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED */
  proveOwner(identity: Holder, password: string | undefined, source: RequestSource): Promise<void>;
}

/** What a ceremony was begun for. */
export type Ceremony =
  | { kind: 'sign-in' }
  | { kind: 'add'; account: string }
  | { kind: 'sign-up'; account: string; email: string; name?: string };

/** A ceremony for the browser: the options of WebAuthn, and a token that returns with the response. */
export interface PasskeyCeremony {
  ceremony: string;
  options: Record<string, unknown>;
}

/** What the browser has made of a ceremony. */
export interface CeremonyResponse {
  ceremony: string;
  credential: object;
}

/** Passkeys over a JSON API. The token of a ceremony is its form: the challenge is derived from it. */
export type PasskeyFlows<S> = ReturnType<typeof createPasskeyFlows<unknown, S>>;

export function createPasskeyFlows<U, S>({
  service,
  accounts,
  ceremonies,
}: {
  service: PasskeyService;
  accounts: PasskeyAccounts<U, S>;
  ceremonies: Sealed<Ceremony>;
}) {
  /** @throws PASSKEY_EXPIRED */
  const open = <K extends Ceremony['kind']>(kind: K, form: string): Extract<Ceremony, { kind: K }> => {
    const ceremony = ceremonies.open(form);
    if (ceremony?.kind !== kind) throw passkeyErrors.PASSKEY_EXPIRED();
    return ceremony as Extract<Ceremony, { kind: K }>;
  };

  const begun = (ceremony: string, options: string): PasskeyCeremony => ({
    ceremony,
    options: JSON.parse(options),
  });

  /** With the address of someone else, a passkey would outlast its owner's reset of the password. */
  const requireVerified = ({ user }: Holder): void => {
    if (!user.emailVerified) throw passkeyErrors.EMAIL_NOT_VERIFIED();
  };

  return {
    beginSignIn(): PasskeyCeremony {
      const form = ceremonies.seal({ kind: 'sign-in' });
      return begun(form, service.requestOptions(form));
    },

    /** @throws PASSKEY_EXPIRED, INVALID_PASSKEY, and those of `PasskeyAccounts.signIn` */
    async signIn(
      { ceremony: form, credential, verificationToken }: CeremonyResponse & { verificationToken?: string },
      source: RequestSource,
    ): Promise<S> {
      open('sign-in', form);
      const signed = { form, credential: JSON.stringify(credential) };
      const user = await service.verify(signed, accounts.find, source);
      if (user === null) throw passkeyErrors.INVALID_PASSKEY();
      return accounts.signIn(user, verificationToken, source);
    },

    /** The same response for every address. */
    beginSignUp({ email, name }: { email: string; name?: string }): PasskeyCeremony {
      const account = accounts.newId();
      const form = ceremonies.seal({ kind: 'sign-up', account, email, ...(name && { name }) });
      return begun(
        form,
        service.firstCreationOptions({ id: account, handle: email, ...(name && { name }) }, form),
      );
    },

    /** @throws PASSKEY_EXPIRED, PASSKEY_REJECTED, and those of `PasskeyAccounts.register` */
    async signUp(
      { ceremony: form, credential }: CeremonyResponse,
      locale: string | undefined,
      source: RequestSource,
    ): Promise<S | null> {
      const { account, email, name } = open('sign-up', form);
      const created = { form, credential: JSON.stringify(credential), name: nameOf(source) };
      const passkey = await service.first(account, created, source);
      if (!passkey) throw passkeyErrors.PASSKEY_REJECTED();
      const registered = accounts.register({ id: account, email, name, locale }, passkey, source);
      return registered.catch((error: unknown) => {
        throw error instanceof UniqueViolation ? passkeyErrors.PASSKEY_REJECTED() : error;
      });
    },

    list: async (userId: string): Promise<PasskeyView[]> => (await service.list(userId)).map(viewOf),

    /** @throws EMAIL_NOT_VERIFIED, TOO_MANY_PASSKEYS */
    async beginAdding(identity: Holder): Promise<PasskeyCeremony> {
      requireVerified(identity);
      const { id, email, name } = identity.user;
      const form = ceremonies.seal({ kind: 'add', account: id });
      const options = await service.creationOptions({ id, handle: email, ...(name && { name }) }, form);
      if (options === null) throw passkeyErrors.TOO_MANY_PASSKEYS();
      return begun(form, options);
    },

    /** @throws EMAIL_NOT_VERIFIED, PASSKEY_EXPIRED, PASSKEY_REJECTED */
    async add(
      identity: Holder,
      { ceremony: form, credential, name }: CeremonyResponse & { name?: string },
      source: RequestSource,
    ): Promise<PasskeyView> {
      requireVerified(identity);
      const { account } = open('add', form);
      if (account !== identity.user.id) throw passkeyErrors.PASSKEY_EXPIRED();
      const created = { form, credential: JSON.stringify(credential), name: name ?? nameOf(source) };
      // The account may have a new owner, or none, since this request was authenticated.
      const added = await service.add(account, created, source, () => accounts.ensureCurrent(identity));
      if (!added) throw passkeyErrors.PASSKEY_REJECTED();
      return viewOf(added);
    },

    /** @throws NOT_FOUND */
    async rename(userId: string, id: string, name: string, source: RequestSource): Promise<void> {
      if (!(await service.rename(userId, id, name, source))) throw httpErrors.NOT_FOUND();
    },

    /** @throws NOT_FOUND, LAST_LOGIN_METHOD, and those of `PasskeyAccounts.proveOwner` */
    async remove(
      identity: Holder,
      { id, password }: { id: string; password?: string },
      source: RequestSource,
    ): Promise<void> {
      const userId = identity.user.id;
      await accounts.proveOwner(identity, password, source);
      const outcome = await service.remove(userId, id, source);
      if (outcome === 'unknown') throw httpErrors.NOT_FOUND();
      if (outcome === 'last') throw passkeyErrors.LAST_LOGIN_METHOD();
    },
  };
}

/** What users recognize a passkey by unless they name it. */
const nameOf = ({ browser, system }: RequestSource): string =>
  [browser?.(), system?.()].filter((part) => part !== undefined).join(', ') || 'Passkey';

export const viewOf = ({ id, name, backedUp, createdAt, lastUsedAt }: PasskeyDocument): PasskeyView => ({
  id,
  name,
  backedUp,
  createdAt: toTimestamp(createdAt),
  lastUsedAt: toTimestampOrNull(lastUsedAt),
});
