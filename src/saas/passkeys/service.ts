import type { Identity } from '../../core/http/identity.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { NewUserFields } from '../../core/http/user-metadata.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { Sealed } from '../../core/kernel/sealed.js';
import { UniqueViolation } from '../../core/storage/collection.js';
import type { PasskeyService } from '../../shared/passkeys/service.js';
import type { PasskeyDocument } from '../../shared/passkeys/store.js';
import type { AuthService } from '../auth/service.js';
import type { SignedIn } from '../auth/sign-in/sign-in.js';
import { passkeyErrors } from './errors.js';
import type { PasskeyView } from './schemas.js';

/** What a ceremony was begun for. */
export type Ceremony =
  | { kind: 'sign-in' }
  | { kind: 'add'; account: string }
  | { kind: 'sign-up'; account: string; email: string; name?: string; fields?: string };

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

/** What a visitor types before the passkey is created. */
export interface NewAccount {
  email: string;
  name?: string;
  fields?: NewUserFields;
}

/** Passkeys over the JSON API. The token of a ceremony is its form: the challenge is derived from it. */
export type PasskeyFlows = ReturnType<typeof createPasskeyFlows>;

export interface PasskeyFlowsDependencies {
  service: PasskeyService;
  accounts: AuthService['passkey'] & Pick<AuthService, 'proveOwner'>;
  ceremonies: Sealed<Ceremony>;
  viewOf(passkey: PasskeyDocument): PasskeyView;
}

export function createPasskeyFlows(deps: PasskeyFlowsDependencies) {
  const { service, accounts, ceremonies, viewOf } = deps;
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
  const requireVerified = ({ user }: Identity): void => {
    if (!user.emailVerified) throw passkeyErrors.EMAIL_NOT_VERIFIED();
  };

  return {
    beginSignIn(): PasskeyCeremony {
      const form = ceremonies.seal({ kind: 'sign-in' });
      return begun(form, service.requestOptions(form));
    },

    /** @throws PASSKEY_EXPIRED, INVALID_PASSKEY, and those of `AuthService.passkey.signIn` */
    async signIn(
      { ceremony: form, credential, verificationToken }: CeremonyResponse & { verificationToken?: string },
      source: RequestSource,
    ): Promise<SignedIn> {
      open('sign-in', form);
      const signed = { form, credential: JSON.stringify(credential) };
      const user = await service.verify(signed, accounts.find, source);
      if (user === null) throw passkeyErrors.INVALID_PASSKEY();
      return accounts.signIn(user, verificationToken, source);
    },

    /** The same response for every address. @throws VALIDATION_ERROR for the fields */
    beginSignUp({ email, name, fields: given }: NewAccount): PasskeyCeremony {
      const account = accounts.newId();
      const fields = accounts.fieldsOf(given);
      const person = { email, ...(name && { name }), ...(fields && { fields }) };
      const form = ceremonies.seal({ kind: 'sign-up', account, ...person });
      return begun(
        form,
        service.firstCreationOptions({ id: account, handle: email, ...(name && { name }) }, form),
      );
    },

    /** @throws PASSKEY_EXPIRED, PASSKEY_REJECTED, and those of `AuthService.passkey.register` */
    async signUp(
      { ceremony: form, credential }: CeremonyResponse,
      locale: string | undefined,
      source: RequestSource,
    ): Promise<SignedIn | null> {
      const { account, email, name, fields } = open('sign-up', form);
      const created = { form, credential: JSON.stringify(credential), name: nameOf(source) };
      const passkey = await service.first(account, created, source);
      if (!passkey) throw passkeyErrors.PASSKEY_REJECTED();
      const registered = accounts.register({ id: account, email, name, fields, locale }, passkey, source);
      return registered.catch((error: unknown) => {
        throw error instanceof UniqueViolation ? passkeyErrors.PASSKEY_REJECTED() : error;
      });
    },

    list: async (userId: string): Promise<PasskeyView[]> => (await service.list(userId)).map(viewOf),

    /** @throws EMAIL_NOT_VERIFIED, TOO_MANY_PASSKEYS */
    async beginAdding(identity: Identity): Promise<PasskeyCeremony> {
      requireVerified(identity);
      const { id, email, name } = identity.user;
      const form = ceremonies.seal({ kind: 'add', account: id });
      const options = await service.creationOptions({ id, handle: email, ...(name && { name }) }, form);
      if (options === null) throw passkeyErrors.TOO_MANY_PASSKEYS();
      return begun(form, options);
    },

    /** @throws EMAIL_NOT_VERIFIED, PASSKEY_EXPIRED, PASSKEY_REJECTED */
    async add(
      identity: Identity,
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

    /** @throws NOT_FOUND, LAST_LOGIN_METHOD, and those of `AuthService.proveOwner` */
    async remove(
      identity: Identity,
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
