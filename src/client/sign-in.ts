import type { ClientMethods } from '../../generated/client/operations.js';
import type { User } from '../../generated/client/schemas.js';
import { SaasError } from './errors.js';

/** How a person signs in at a provider. */
export interface ProviderSignInOptions {
  /** Where the browser returns: a path, or an address at an origin of `CORS_ORIGIN`. Default: the current page. */
  returnTo?: string | undefined;
  /** `login`: the provider asks the person to sign in again, for calls that answer `REAUTHENTICATION_REQUIRED`. */
  prompt?: 'login' | undefined;
  /** The address or user name that the provider suggests. */
  loginHint?: string | undefined;
  /** Whether the provider is connected to the account of the signed-in user, instead of signing in. */
  connect?: boolean | undefined;
}

/** How a person signs in with a passkey. */
export interface PasskeySignInOptions {
  /** `conditional`: the browser offers passkeys in the field with `autocomplete="username webauthn"`. */
  mediation?: 'conditional' | undefined;
  /** Ends the wait for the person. */
  signal?: AbortSignal | undefined;
  /** The token of a mailed link, which confirms the address. */
  verificationToken?: string | undefined;
}

/** A provider that is connected to an account. */
export type ConnectedIdentity = Awaited<ReturnType<ClientMethods['user']['connectIdentity']>>;

/** Ways to sign in that need the browser. */
export interface SignInMethods {
  /**
   * Leaves the page for the sign-in at a provider of `LOGIN_PROVIDERS`. The page to which the browser returns calls
   * {@link complete}.
   */
  provider(name: 'google' | 'github' | (string & {}), options?: ProviderSignInOptions): Promise<void>;
  /**
   * Completes the sign-in with which the browser has returned to this page: `user` has signed in, or `identity` was connected.
   * Null if the page was opened in another way. Errors: `CANCELLED` by the person, `PROVIDER_FAILED`, and those of
   * `auth.exchangeTicket` or `user.connectIdentity`. After `ACCOUNT_EXISTS`, the person signs in to that account, and connects the
   * provider with `connect`.
   */
  complete(): Promise<{ user?: User; identity?: ConnectedIdentity } | null>;
  /** Signs in with a passkey. Errors: `CANCELLED` by the person, and those of `auth.passkeyLogin`. */
  passkey(options?: PasskeySignInOptions): Promise<{ user: User }>;
}

/** Passkeys that the browser creates. */
export interface PasskeyMethods {
  /** Adds a passkey to the account of the user. Errors: `CANCELLED` by the person, and those of `user.addPasskey`. */
  add(body?: { name?: string | undefined }): ReturnType<ClientMethods['user']['addPasskey']>;
  /** Creates an account with a passkey. Errors: `CANCELLED` by the person, and those of `auth.registerWithPasskey`. */
  register(body: {
    /** The address of the new account. */
    email: string;
    /** The name of the person. */
    name?: string | undefined;
  }): ReturnType<ClientMethods['auth']['registerWithPasskey']>;
}

interface Credential {
  id: string;
  type: string;
  response: Record<string, ArrayBuffer>;
}

type Ceremony = (options: { publicKey: object } & PasskeySignInOptions) => Promise<Credential>;

/** The part of a browser that is used: its types are missing in the ones of Node.js. */
interface Page {
  location: { href: string; origin: string; pathname: string; search: string; assign(url: string): void };
  history: { state: unknown; replaceState(state: unknown, unused: string, url: string): void };
  sessionStorage: {
    getItem(key: string): string | null;
    setItem(key: string, value: string): void;
    removeItem(key: string): void;
  };
  navigator: { credentials: { create: Ceremony; get: Ceremony } };
  PublicKeyCredential: {
    parseCreationOptionsFromJSON(json: object): object;
    parseRequestOptionsFromJSON(json: object): object;
  };
}

const base64url = (bytes: ArrayBuffer | Uint8Array): string =>
  btoa(String.fromCharCode(...new Uint8Array(bytes)))
    .replace(/\+/g, '-')
    .replace(/\//g, '_')
    .replace(/=/g, '');

const BYTES = ['clientDataJSON', 'attestationObject', 'authenticatorData', 'signature', 'userHandle'];

/** As `toJSON`, which throws for the credentials that some password managers build. */
const toJson = ({ id, type, response }: Credential): object => ({
  id,
  type,
  response: Object.fromEntries(
    BYTES.flatMap((name) => (response[name] ? [[name, base64url(response[name])]] : [])),
  ),
});

/** @param root the address of the API @param key names the state of a sign-in in the storage of the tab */
export function createSignIn(
  root: string,
  key: string,
  { auth, user }: Pick<ClientMethods, 'auth' | 'user'>,
) {
  const page = globalThis as unknown as Page;
  let completing: ReturnType<SignInMethods['complete']> | undefined;

  /** Runs a ceremony of WebAuthn. @throws CANCELLED */
  const perform = async (
    { ceremony, options }: { ceremony: string; options: object },
    kind: 'create' | 'get',
    more?: Omit<PasskeySignInOptions, 'verificationToken'>,
  ) => {
    const parse = kind === 'get' ? 'parseRequestOptionsFromJSON' : 'parseCreationOptionsFromJSON';
    const publicKey = page.PublicKeyCredential[parse](options);
    const credential = await page.navigator.credentials[kind]({ publicKey, ...more }).catch(
      (error: Error) => {
        throw error.name === 'NotAllowedError' ? new SaasError('CANCELLED', 0, {}, undefined, error) : error;
      },
    );
    return { ceremony, credential: toJson(credential) };
  };

  const finish = async () => {
    const { sessionStorage, location, history } = page;
    const begun = sessionStorage.getItem(key);
    const url = new URL(location.href);
    const take = (name: string) => {
      const value = url.searchParams.get(name);
      url.searchParams.delete(name);
      return value;
    };
    const [ticket, error] = [take('ticket'), take('error')];
    // The page may have parameters of these names for purposes of its own.
    if (!begun || !(ticket || error)) return null;
    const { codeVerifier, connect } = JSON.parse(begun);
    sessionStorage.removeItem(key);
    history.replaceState(history.state, '', url.href);
    if (ticket === null) throw new SaasError(error === 'access_denied' ? 'CANCELLED' : 'PROVIDER_FAILED', 0);
    const redemption = { ticket, codeVerifier };
    return connect ? { identity: await user.connectIdentity(redemption) } : auth.exchangeTicket(redemption);
  };

  const signIn: SignInMethods = {
    async provider(name, { connect, returnTo, ...more } = {}) {
      const { location, sessionStorage } = page;
      const codeVerifier = base64url(crypto.getRandomValues(new Uint8Array(32)));
      const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(codeVerifier));
      const url = new URL(`${root}/auth/login/${name}`);
      const here =
        (url.origin === location.origin ? '' : location.origin) + location.pathname + location.search;
      const query = { returnTo: returnTo ?? here, codeChallenge: base64url(digest), ...more };
      for (const [field, value] of Object.entries(query)) if (value) url.searchParams.set(field, value);
      sessionStorage.setItem(key, JSON.stringify({ codeVerifier, connect }));
      location.assign(url.href);
    },
    complete() {
      completing ??= finish().finally(() => {
        completing = undefined;
      });
      return completing;
    },
    async passkey({ verificationToken, ...options } = {}) {
      const credential = await perform(await auth.beginPasskeyLogin(), 'get', options);
      return auth.passkeyLogin({ ...credential, verificationToken });
    },
  };
  const passkeys: PasskeyMethods = {
    add: async (body) =>
      user.addPasskey({ ...body, ...(await perform(await user.beginAddingPasskey(), 'create')) }),
    register: async (body) =>
      auth.registerWithPasskey(await perform(await auth.beginPasskeyRegistration(body), 'create')),
  };
  return { signIn, passkeys };
}
