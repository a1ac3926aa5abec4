import { canonicalEmail } from '../../../core/http/mailboxes.js';
import type { RequestSource } from '../../../core/http/routes.js';
import type { UserFieldsPatch } from '../../../core/http/user-metadata.js';
import { addressBlock } from '../../../core/kernel/addresses.js';
import { FUTURE_TOLERANCE_MS } from '../../../core/kernel/clock.js';
import { createSealed } from '../../../core/kernel/sealed.js';
import { isSecretOf, newToken, sha256 } from '../../../core/kernel/secrets.js';
import { authErrors } from '../errors.js';
import { authLimits } from '../limits.js';
import { isDisabled } from '../store.js';
import { type CodeAccountDependencies, createCodeAccounts } from './code-accounts.js';
import {
  LOGIN_CODE_ATTEMPTS,
  LOGIN_CODE_TTL_MS,
  type LoginCodeDocument,
  type LoginCodes,
  newLoginCode,
  readLoginCode,
} from './login-codes.js';
import type { SignedIn } from './sign-in.js';

/**
 * Sign-in, and registration, with a code that is mailed. The code signs in only together with the login token, which the
 * browser that requested it keeps: a forwarded link, a mail scanner or another browser has the code alone.
 */
export type EmailLogin = ReturnType<typeof createEmailLogin>;

/** What a login token contains. */
interface LoginRequest {
  /** In lower case. */
  email: string;
  secret: string;
}

export function createEmailLogin(deps: CodeAccountDependencies, codes: LoginCodes) {
  const { users, mails, throttle, audit, clock, random } = deps;
  const sealing = { keys: deps.secrets, lifetimeMs: LOGIN_CODE_TTL_MS, clock, random };
  const loginTokens = createSealed<LoginRequest>('sign-ins by e-mail', sealing);
  const accounts = createCodeAccounts(deps);

  /** Strangers can use up the mails to an address, but not those of requests from its known locations. */
  const mayMail = async (email: string, ip: string): Promise<boolean> =>
    (await throttle.tryCountKey(authLimits.mailTo.login, email, ip)) ||
    ((await throttle.isTrusted(email, ip)) &&
      (await throttle.tryCountKey(authLimits.mailTo.knownLogin, email, ip)));

  /** Stores a code, and mails it if it can sign in. */
  const sendCode = async (
    { email, secret }: LoginRequest,
    locale: string | undefined,
    source: RequestSource,
  ): Promise<void> => {
    const { ip } = source;
    if (!(await mayMail(email, ip))) return;
    const user = await users.findOne({ email });
    const code = newLoginCode(random);
    const id = sha256(secret);
    const expiresAt = clock.now() + LOGIN_CODE_TTL_MS;
    const isReceived = user ? !isDisabled(user) : await deps.registrationAllowed();
    // The owner of a mistyped address must not receive the location of the sender.
    const reported = user?.emailVerified ? source : undefined;
    await deps.commit([
      // Also for addresses without an account, so that wrong codes get the same responses.
      codes.inserting({
        id,
        codeHash: hashOf(secret, code),
        attemptsLeft: LOGIN_CODE_ATTEMPTS,
        expiresAt,
        ...(user && { userId: user.id, epoch: user.sessionEpoch }),
      }),
      isReceived ? mails.loginCode(user ?? { email, locale }, { code, id, expiresAt }, reported) : undefined,
      audit.failureEntry({ event: 'login.code-requested', ip, ...(user && { subject: user.id }) }),
    ]);
  };

  /**
   * Uses a code. Each attempt is counted before the code is compared, so that parallel ones are counted, too.
   * @returns null for a wrong code
   * @throws CODE_EXPIRED
   */
  const useCode = async (
    { secret }: LoginRequest,
    code: string,
    { ip }: RequestSource,
  ): Promise<LoginCodeDocument | null> => {
    const now = clock.now();
    const pending = {
      id: sha256(secret),
      expiresAt: { gt: now, lte: now + LOGIN_CODE_TTL_MS + FUTURE_TOLERANCE_MS },
    };
    const counted = await codes.updateOne(
      { ...pending, attemptsLeft: { gt: 0 } },
      { inc: { attemptsLeft: -1 } },
    );
    if (!counted) throw authErrors.CODE_EXPIRED();
    if (!isSecretOf(textOf(secret, code), counted.codeHash)) {
      const { userId: subject } = counted;
      await audit.recordFailure({ event: 'login.code-refused', ip, ...(subject && { subject }) });
      return null;
    }
    // Of parallel requests with the right code, one deletes it.
    if (!(await codes.deleteOne(pending))) throw authErrors.CODE_EXPIRED();
    return counted;
  };

  return {
    /**
     * Mails a code after the response, which is the same for every address. Earlier codes of the address remain valid, so that
     * no request of a stranger ends one. Returns the login token.
     * @throws RATE_LIMITED
     */
    async requestCode(
      { email: given, locale }: { email: string; locale?: string | undefined },
      source: RequestSource,
    ): Promise<string> {
      const { ip } = source;
      const email = canonicalEmail(given);
      await throttle.count(authLimits.loginCode, ip);
      // Also by client, so that one cannot use up the limit of an address, and learns only about its own requests.
      await throttle.countKey(authLimits.loginCodeFrom, `${email}\n${addressBlock(ip)}`, ip);
      const request = { email, secret: newToken(random) };
      deps.backgroundTasks.run('login code', () => sendCode(request, locale, source));
      return loginTokens.seal(request);
    },

    /**
     * Signs in, and verifies the address. A code works once, also if the request fails after that. An account whose address was not verified loses its password, sessions and everything else that signs in: a stranger may have
     * registered it.
     * @param given `fields` are for a new account only
     * @throws VALIDATION_ERROR for the fields; INVALID_CODE, CODE_EXPIRED, REGISTRATION_DISABLED, SECOND_FACTOR_REQUIRED, SECOND_FACTOR_ENROLMENT_REQUIRED,
     *   RATE_LIMITED
     */
    async redeem(
      {
        loginToken,
        code: typed,
        locale,
        fields: given,
      }: { loginToken: string; code: string; locale?: string | undefined; fields?: UserFieldsPatch },
      source: RequestSource,
    ): Promise<SignedIn> {
      // Before the code is used. Nobody knows yet whether there will be a new account, so none is demanded.
      const fields = deps.userFields?.change(undefined, given, 'user');
      await throttle.count(authLimits.login, source.ip);
      const request = loginTokens.open(loginToken);
      if (!request) throw authErrors.CODE_EXPIRED();
      const { email } = request;
      const code = readLoginCode(typed);
      const guess = { account: `login code of ${email}`, ip: source.ip, kind: 'code' } as const;
      const document = await throttle.attempt(guess, () => useCode(request, code, source));
      if (!document) throw authErrors.INVALID_CODE();
      return accounts.signIn(document, { email, locale, fields }, source);
    },
  };
}

const textOf = (secret: string, code: string): string => `${secret} ${code}`;
const hashOf = (secret: string, code: string): string => sha256(textOf(secret, code));
