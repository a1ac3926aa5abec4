import type { SessionSource } from '../../core/http/request-details.js';
import type { Session, User } from '../../core/http/schemas.js';
import type { UserFieldValues } from '../../core/http/user-metadata.js';
import { SECOND } from '../../core/kernel/clock.js';
import { type AppError, httpErrors } from '../../core/kernel/errors.js';
import type { JobLog } from '../../core/ops/jobs.js';
import type { NewCheckoutSession } from '../billing/context.js';
import type { CheckoutParameters } from '../billing/provider/checkout-sessions.js';
import { authErrors } from './errors.js';
import { type SessionDocument, toSessionView } from './store.js';

/**
 * Functions of the host that take part in registrations and sign-ins. Each may be asynchronous and has `timeoutMs` to finish.
 * They run outside of any lock; a slow one delays only its own request.
 */
export interface SaasHooks {
  /**
   * Called before anything about a new account is stored, for every way to register over HTTP and on the pages. It rejects
   * by returning a `RegistrationRejection`. It is called in the same way for addresses that have an account already, so that
   * its answer does not reveal them. If it throws, the response is 500; if it is too late, 503; nothing is stored then. Not
   * called for `users.create` and imports.
   */
  // biome-ignore lint/suspicious/noConfusingVoidType: a function without a return statement accepts
  beforeRegister?(registration: NewRegistration): HookResult<RegistrationRejection | undefined | void>;
  /**
   * Called after a session has started, also by a registration, and before the response. If it throws or is too late, the
   * sign-in succeeds nevertheless, and the log says so.
   */
  afterLogin?(login: CompletedLogin): HookResult<void>;
  /**
   * Returns further claims of an access token; called before a session starts and before each refresh. Names of the package
   * (`RESERVED_CLAIMS`: `sub`, `exp`, `sid`, …) are refused, as are more than 2 KiB of JSON: the response is 500. If it throws
   * or is too late, it is 503: no session starts, and the client can repeat the refresh with the same token.
   */
  accessTokenClaims?(subject: TokenSubject): HookResult<Record<string, unknown>>;
  /**
   * Returns the parameters with which a checkout session is opened, in the names of the provider's API: it receives those of the order and
   * may add to them or change them. The customer, the user in `client_reference_id` and `metadata`, the mode, the item of the plan, the trial
   * and the addresses of the return stay as they are. It must return the same for the same order, which then has one page. If it throws,
   * the response is 500; if it is too late, 503.
   */
  checkoutSession?(session: NewCheckoutSession): HookResult<CheckoutParameters>;
  /** How long each call may take, in milliseconds: 1 to 10,000; default 3,000. */
  timeoutMs?: number;
}

/** A hook may be asynchronous. */
type HookResult<T> = T | Promise<T>;

/** The first factor of a sign-in. */
export type LoginMethod = 'password' | 'code' | 'provider' | 'passkey';

/** A registration that nothing is stored about yet. */
export interface NewRegistration extends RequestSource {
  /** In lower case. Only for `code` and `provider` proven to belong to the person. */
  email: string;
  /** The display name, if one is given. */
  name?: string;
  /** The values of the fields of the option `userFields`, which are valid; absent without the option. */
  fields?: UserFieldValues;
  /** How the person will sign in. */
  method: LoginMethod;
}

/** The response to a registration that the host does not accept: 403 `REGISTRATION_REJECTED`. */
export interface RegistrationRejection {
  /** For programs: `error.reason` of the response, capital letters, digits and underscores, like `INVITATION_REQUIRED`. */
  reason: string;
  /** A sentence for the person, of at most 300 characters. */
  message: string;
}

/** A session that has started. */
export interface CompletedLogin extends RequestSource {
  /** Who signed in. */
  user: User;
  /** It has started already. */
  session: Session;
  /** The first factor. */
  method: LoginMethod;
  /** Whether a second factor was used; a passkey counts as both. */
  secondFactor: boolean;
  /** Whether the session began with the registration. */
  registered: boolean;
}

/** For whom an access token is issued. */
export interface TokenSubject {
  /** The owner of the session. During a registration, the user is not stored yet. */
  user: User;
  /** The session of the token. */
  sessionId: string;
  /** When the token is issued. */
  reason: 'login' | 'refresh';
}

/** From where a request came. */
export interface RequestSource {
  /** The address of the client. */
  ip: string;
  /** The family of the browser, such as `Firefox`; absent if unknown. */
  browser?: string;
  /** The operating system, such as `Windows`; absent if unknown. */
  system?: string;
}

/** The hooks under the rules above. Those that are not configured are absent, and cost nothing. */
export type Hooks = ReturnType<typeof createHooks>;

/** Claims that only the package sets, or that have a meaning for those who accept tokens (RFC 7519, RFC 8693, RFC 9068). */
export const RESERVED_CLAIMS: ReadonlySet<string> = new Set([
  ...['iss', 'sub', 'aud', 'exp', 'nbf', 'iat', 'jti', 'sid', 'token_use', 'typ'],
  ...['auth_time', 'acr', 'amr', 'azp', 'client_id', 'scope', 'act', 'may_act', 'cnf', 'nonce', 'epoch'],
  ...['__proto__', 'constructor', 'prototype'],
]);

const MAX_CLAIMS_BYTES = 2 * 1024;
const DEFAULT_TIMEOUT_MS = 3 * SECOND;

class HookTimeout extends Error {
  override readonly name = 'HookTimeout';
}

export function createHooks({ timeoutMs = DEFAULT_TIMEOUT_MS, ...given }: SaasHooks, log: JobLog) {
  /** Calls a hook. @throws HookTimeout, and what the hook throws */
  const call = async <T>(name: keyof SaasHooks, run: () => HookResult<T>): Promise<T> => {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(new HookTimeout(`The hook ${name} took longer than ${timeoutMs} ms.`)),
        timeoutMs,
      );
    });
    try {
      // In an asynchronous function, so that what a hook throws at once is a rejection, too.
      return await Promise.race([(async () => run())(), late]);
    } finally {
      clearTimeout(timer);
    }
  };

  const logged = (hook: keyof SaasHooks, err: unknown): void =>
    log.error({ err, hook }, `the hook ${hook} failed`);

  /** The error of the response. */
  const failed =
    (hook: keyof SaasHooks) =>
    (err: unknown): never => {
      if (!(err instanceof HookTimeout)) throw httpErrors.INTERNAL({ cause: err });
      logged(hook, err);
      throw httpErrors.NOT_READY();
    };

  const { beforeRegister, afterLogin, accessTokenClaims, checkoutSession } = given;
  return {
    /** @throws REGISTRATION_REJECTED, NOT_READY, INTERNAL */
    beforeRegister:
      beforeRegister &&
      (async (
        { email, name, fields }: Pick<NewRegistration, 'email' | 'name' | 'fields'>,
        method: LoginMethod,
        source: SessionSource,
      ) => {
        const registration = {
          email,
          ...(name !== undefined && { name }),
          ...(fields && { fields }),
          method,
          ...sourceOf(source),
        };
        const rejection = await call('beforeRegister', () => beforeRegister(registration)).catch(
          failed('beforeRegister'),
        );
        if (rejection !== undefined) throw rejectedWith(rejection);
      }),

    /** Never rejects. */
    afterLogin:
      afterLogin &&
      (async (user: User, document: SessionDocument, registered: boolean, source: SessionSource) => {
        const session = toSessionView(document);
        const login = { user, session, ...loginMethodOf(session), registered, ...sourceOf(source) };
        await call('afterLogin', () => afterLogin(login)).catch((error: unknown) =>
          logged('afterLogin', error),
        );
      }),

    /** @throws NOT_READY, INTERNAL */
    checkoutSession:
      checkoutSession &&
      (async (session: NewCheckoutSession): Promise<CheckoutParameters> => {
        const parameters = await call('checkoutSession', () => checkoutSession(session)).catch(
          failed('checkoutSession'),
        );
        if (typeof parameters === 'object' && parameters !== null) return parameters;
        const cause = new TypeError('The hook checkoutSession must return the parameters of a session.');
        throw httpErrors.INTERNAL({ cause });
      }),

    /** @throws NOT_READY, INTERNAL */
    accessTokenClaims:
      accessTokenClaims &&
      (async (subject: TokenSubject) => {
        const claims = await call('accessTokenClaims', () => accessTokenClaims(subject)).catch(
          (error: unknown) => {
            logged('accessTokenClaims', error);
            throw httpErrors.NOT_READY();
          },
        );
        return validateClaims(claims);
      }),
  };
}

function rejectedWith(rejection: unknown): AppError {
  const { reason, message } = Object(rejection) as Partial<RegistrationRejection>;
  const isUsable =
    typeof reason === 'string' &&
    /^[A-Z][A-Z0-9_]{0,63}$/.test(reason) &&
    typeof message === 'string' &&
    /^[^\p{Cc}\p{Cs}]{1,300}$/u.test(message);
  if (isUsable) return authErrors.REGISTRATION_REJECTED({ message, members: { reason } });
  const cause = new TypeError(
    'The hook beforeRegister must return nothing, or a reason like INVITATION_REQUIRED and a message of at most 300 characters.',
  );
  return httpErrors.INTERNAL({ cause });
}

/** A copy, which the hook cannot change any more. @throws INTERNAL */
function validateClaims(claims: unknown): Record<string, unknown> {
  const refuse = (problem: string): never => {
    throw httpErrors.INTERNAL({ cause: new TypeError(`The hook accessTokenClaims ${problem}`) });
  };
  let text = '';
  try {
    text = JSON.stringify(claims) ?? 'null';
  } catch {
    return refuse('returned what JSON cannot represent.');
  }
  if (Buffer.byteLength(text) > MAX_CLAIMS_BYTES)
    return refuse(`returned more than ${MAX_CLAIMS_BYTES} bytes.`);
  // An object with `toJSON` can represent anything else.
  const copy = JSON.parse(text) as Record<string, unknown> | null;
  if (typeof copy !== 'object' || copy === null || Array.isArray(copy))
    return refuse('must return an object.');
  const reserved = Object.keys(copy).find((name) => RESERVED_CLAIMS.has(name));
  return reserved === undefined ? copy : refuse(`returned the claim '${reserved}', which is reserved.`);
}

/** The client of a request, as hooks receive it. */
function sourceOf({ ip, browser, system }: SessionSource): RequestSource {
  const [family, name] = [browser?.(), system?.()];
  return {
    ip,
    ...(family !== undefined && { browser: family }),
    ...(name !== undefined && { system: name }),
  };
}

const METHODS: Readonly<Record<string, LoginMethod>> = {
  pwd: 'password',
  otp: 'code',
  fed: 'provider',
  pop: 'passkey',
};

/** How a user signed in, from what the session stores. */
function loginMethodOf({ amr }: Session): Pick<CompletedLogin, 'method' | 'secondFactor'> {
  return { method: METHODS[amr[0] ?? 'pwd'] ?? 'password', secondFactor: amr.includes('mfa') };
}
