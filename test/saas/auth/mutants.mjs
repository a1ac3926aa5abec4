/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'mails to unverified addresses have fields', file: 'saas/auth/mails.ts', in: 'greeting',
    replace: 'emailVerified ?', by: 'true ?',
    tests: [['saas/auth/user-fields', 'mails to a verified address have the fields, others have not']],
  },
  {
    name: 'values of fields are not validated', file: 'saas/auth/users/fields.ts', in: 'problemOf',
    replace: 'if (value !== null) return textProblem(value) ?? valueProblem(schema, value, MAX_TEXT);', by: 'if (value !== null) return undefined;',
    tests: [['saas/auth/user-fields', 'the user changes fields in the profile']],
  },
  {
    name: 'a user writes what only the operator may', file: 'saas/auth/users/fields.ts', in: 'problemOf',
    replace: "by !== 'operator' && !isWritable(schema)", by: "by === 'visitor' && !isWritable(schema)",
    tests: [['saas/auth/user-fields', 'the user changes fields in the profile']],
  },
  {
    name: 'a registration lacks what is required', file: 'saas/auth/users/fields.ts', in: 'change',
    replace: "by === 'visitor' ? names.filter", by: "by === 'operator' ? names.filter",
    tests: [['saas/auth/user-fields', 'a registration without a required field, or with a wrong one, is refused']],
  },
  {
    name: 'the code of a mail registers with any values', file: 'saas/auth/sign-in/email-login.ts', in: 'redeem',
    replace: "deps.userFields?.change(undefined, given, 'user')", by: "given === undefined ? undefined : JSON.stringify(given)",
    tests: [['saas/auth/user-fields', 'an account by a mailed code has the fields of the request']],
  },
  {
    name: 'pages of other origins use the cookie', file: 'saas/auth/sessions/browser-sessions.ts', in: 'problemOf',
    replace: 'return isTrustedOrigin(headers, origins()) ?', by: 'return true ?',
    tests: [['saas/auth/browser-sessions', 'pages of other origins cannot use the cookie, unless they are named']],
  },
  {
    name: 'a request without the header uses the cookie', file: 'saas/auth/sessions/browser-sessions.ts', in: 'readToken',
    replace: 'const needsToken = usesCookie(request) &&', by: 'const needsToken =',
    tests: [['saas/auth/browser-sessions', 'a client that does not ask is not affected by a cookie']],
  },
  {
    name: 'a server accepts any earlier cookie of a session', file: 'saas/auth/sessions/cookie-sessions.ts', in: 'find',
    replace: 'if (session.currentId !== presented && !isPrevious) return null;', by: '',
    tests: [['saas/auth/server-sessions', 'the cookie before the current one is good for 30 seconds, and an older one ends nothing']],
  },
  {
    name: 'a refresh token of a client works as a cookie', file: 'saas/auth/sessions/cookie-sessions.ts', in: 'find',
    replace: '!verified?.isOfCookie || verified.isExpired', by: '!verified || verified.isExpired',
    tests: [['saas/auth/server-sessions', 'a visitor who is not signed in is no error']],
  },
  {
    name: 'an operator acts as a user for as long as the cookie is used', file: 'saas/auth/sessions/cookie-sessions.ts', in: 'recordUse',
    replace: 'session.impersonator || ', by: '',
    tests: [['saas/auth/server-sessions', 'the session of an operator who acts as a user is shown and never goes on longer']],
  },
  {
    name: 'a use opens the window of the token before again', file: 'saas/auth/sessions/cookie-sessions.ts', in: 'recordUse',
    replace: 'seenAt: now,', by: 'rotatedAt: now,',
    tests: [['saas/auth/server-sessions', 'a use counts as activity of its day and does not open the window of a used token again']],
  },
  {
    name: 'without a trusted proxy, visitors choose their address', file: 'saas/fetch-handler.ts', in: 'takeAddress',
    replace: "isProxyTrusted ? (headers['x-forwarded-for'] ?? '')", by: "true ? (headers['x-forwarded-for'] ?? '')",
    tests: [['saas/fetch-handler', 'without an address, development answers and production says what to do']],
  },
  {
    name: 'the backend gets all cookies of the application', file: 'server/backend.ts', in: 'credentialsIn',
    replace: '.filter((one) => SESSION_COOKIE.test(one))', by: '',
    tests: [['saas/fetch-handler', 'a server in another process has the same sessions, and passes the address of visitors']],
  },
  {
    name: 'the password alone opens an account with a second factor', file: 'saas/auth/sign-in/password-login.ts', in: 'login',
    replace: 'await deps.secondFactorStep?.demand(user, FIRST_FACTOR.password, source);', by: '',
    tests: [['saas/auth/second-factor', 'a user sets up an authenticator app, and sign-in asks for its code']],
  },
  {
    name: 'a challenge fits every purpose', file: 'saas/auth/sign-in/second-factor.ts', in: 'accountOf',
    replace: 'challenge?.purpose !== purpose', by: '!challenge',
    tests: [['saas/auth/second-factor', 'a challenge is worth nothing as a token, for another purpose, or after']],
  },
  {
    name: 'every session counts as recent', file: 'saas/auth/sign-in/recent-auth.ts', in: 'requireRecent',
    replace: 'if (age > maxAge * SECOND)', by: 'if (false)',
    tests: [['saas/auth/second-factor', 'routes can require a recent proof of the user, and a second factor']],
  },
  {
    name: 'the link of a change never expires', file: 'saas/auth/links/confirm-address.ts', in: 'confirmationBy',
    replace: ' && isValid(changeExpiresAt)', by: '',
    tests: [['saas/auth/confirmation', 'the link that changes an address expires after a day']],
  },
  {
    name: 'a confirmation from elsewhere keeps sessions', file: 'saas/auth/links/confirm-address.ts',
    in: 'useLink',
    replace: 'passwordVersion: 1, sessionEpoch: 1', by: 'passwordVersion: 1',
    tests: [['saas/auth/confirmation', 'a later confirmation from another browser ends the sessions and links']],
  },
  {
    name: 'the attempts of a mailed code are counted afterwards', file: 'saas/auth/sign-in/email-login.ts',
    in: 'useCode',
    replace: '{ inc: { attemptsLeft: -1 } }', by: '{ inc: { attemptsLeft: 0 } }',
    tests: [['saas/auth/email-login', 'five wrong codes end a request, also if they are sent at once']],
  },
  {
    name: 'a mailed code works several times', file: 'saas/auth/sign-in/email-login.ts', in: 'useCode',
    replace: '!(await codes.deleteOne(pending))', by: 'false',
    tests: [['saas/auth/login-codes-outage', 'of two requests with a code, one signs in']],
  },
  {
    name: 'wrong codes reveal which addresses have an account', file: 'saas/auth/sign-in/email-login.ts', in: 'sendCode',
    replace: 'await deps.commit([', by: 'if (user) await deps.commit([',
    tests: [['saas/auth/email-login', 'nothing reveals whether an address has an account, not even wrong codes']],
  },
  {
    name: 'a stranger keeps the password after a mailed code', file: 'saas/auth/sign-in/code-accounts.ts',
    in: 'takeOver',
    replace: "'passwordHash', ...ALL", by: '...ALL',
    tests: [['saas/auth/email-login', 'an account that a stranger registered belongs to the owner']],
  },
  {
    name: 'a mailed code opens an account with a second factor', file: 'saas/auth/sign-in/code-accounts.ts',
    in: 'signIn',
    replace: 'await deps.secondFactorStep?.demand(user, FIRST_FACTOR.code, source);', by: '',
    tests: [['saas/auth/email-login', 'a code is the first factor: the second one is demanded']],
  },
  {
    name: 'a mailed code outlives the end of all sessions', file: 'saas/auth/sign-in/code-accounts.ts',
    in: 'openAccount',
    replace: '&& user?.sessionEpoch === epoch;', by: ';',
    tests: [['saas/auth/email-login', 'a code ends with whatever ends all sessions']],
  },
  {
    name: 'a password of the host leaves sessions', file: 'saas/auth/users/user-update.ts', in: 'writeOf',
    replace: '{ passwordVersion: 1, sessionEpoch: 1 }', by: '{ passwordVersion: 1 }',
    tests: [['saas/auth/user-api', 'a password that a host sets ends every session, and the user gets a notice']],
  },
  {
    name: 'a hook may overwrite the user of a token', file: 'saas/auth/hooks.ts', in: 'validateClaims',
    replace: '.find((name) => RESERVED_CLAIMS.has(name))', by: '.find(() => false)',
    tests: [['saas/auth/hooks', 'claims never replace those of the session, and have a maximum size']],
  },
  {
    name: 'a hook that fails lets everybody register', file: 'saas/auth/hooks.ts', in: 'createHooks',
    replace: "beforeRegister(registration)).catch( failed('beforeRegister'), )",
    by: 'beforeRegister(registration)).catch(() => undefined)',
    tests: [['saas/auth/hooks', 'a registration fails without a trace if its hook throws, hangs or answers']],
  },
  {
    name: 'a refresh rotates the session whichever token it presents', file: 'saas/auth/sessions/refresh.ts',
    in: 'refresh',
    replace: 'currentId: presented, revokedAt: null', by: 'revokedAt: null',
    tests: [['saas/auth/sessions', 'the grace window after a rotation does not slide']],
  },
  {
    name: 'a used refresh token is never treated as stolen', file: 'saas/auth/sessions/refresh.ts', in: 'refresh',
    replace: 'const inWindow = isPrevious && isRecent(session.rotatedAt, { now: clock.now(), within: reuseWindowMs });',
    by: 'const inWindow = isPrevious;',
    tests: [['saas/auth/sessions', 'the grace window after a rotation does not slide']],
  },
  {
    name: 'a session outlives the end of all sessions', file: 'saas/auth/store.ts', in: 'isSessionValid',
    replace: 'session.epoch === user.sessionEpoch ||', by: 'true ||',
    tests: [['saas/auth/accounts', 'changing the password requires the current one and ends all other sessions']],
  },
  {
    name: 'a session of a suspended user goes on', file: 'saas/auth/store.ts', in: 'isSessionValid',
    replace: '!isDisabled(user) &&', by: '',
    tests: [['saas/auth/sessions', 'suspension and deletion take effect on the next request']],
  },
  {
    name: 'an operator without the role goes on to act as a user', file: 'saas/auth/sessions/sessions.ts',
    in: 'createSessionService',
    replace: 'hasRole(operator, impersonationRoles) &&', by: '',
    tests: [['saas/auth/impersonation', 'what ends the powers of the operator ends the session at the next request']],
  },
  {
    name: 'an operator has the roles of the user', file: 'saas/auth/users/roles.ts', in: 'withRolesOf',
    replace: 'operator.roles?.filter((role) => user.roles?.includes(role)) ?? []', by: 'user.roles ?? operator.roles ?? []',
    tests: [['saas/auth/impersonation', 'an operator gains no role by acting as a user who has more']],
  },
  {
    name: 'an operator acts as another operator', file: 'saas/auth/sign-in/impersonation.ts', in: 'createImpersonation',
    replace: '(hasRole(user, impersonationRoles) || user.operatorRole !== undefined)', by: 'false',
    tests: [['saas/auth/impersonation', 'who may act as whom']],
  },
  {
    name: 'an operator who acts as a user writes', file: 'saas/guards.ts', in: 'refuseImpersonator',
    replace: "['GET', 'HEAD'].includes(request.method) &&", by: '',
    tests: [['saas/auth/impersonation', 'every route of the API is read-only during impersonation']],
  },
  {
    name: 'an operator acts as a user as long as the session is refreshed', file: 'saas/auth/sessions/tokens.ts',
    in: 'createSessionTokens',
    replace: 'impersonator ? IMPERSONATION_MS : Number.POSITIVE_INFINITY', by: 'Number.POSITIVE_INFINITY',
    tests: [['saas/auth/impersonation', 'an operator acts as a user for 30 minutes, whatever is refreshed']],
  },
  {
    name: 'the guard of a role admits everyone', file: 'saas/guards.ts', in: 'createRoleGuard',
    replace: 'demandRole(request.saas.user, [role]);', by: '',
    tests: [['saas/auth/user-roles', 'a guard admits users with the role, from the next request on']],
  },
  {
    name: 'a suspended user signs in', file: 'saas/auth/sign-in/sign-in.ts', in: 'rejectUnusable',
    replace: 'isDisabled(user) ||', by: '',
    tests: [['saas/auth/sessions', 'login answers alike for an unknown address, a wrong password']],
  },
  {
    name: 'any header names a key', file: 'saas/auth/sessions/access-keys.ts', in: 'verify',
    replace: 'byHeader.get(header)', by: '[...byHeader.values()][0]',
    tests: [['saas/auth/public-tokens', 'algorithms and keys are not confused']],
  },
  {
    name: 'the signature of a key is not verified', file: 'saas/auth/sessions/access-keys.ts', in: 'verify',
    replace: 'if (!verify(', by: 'if (false && !verify(',
    tests: [['saas/auth/public-tokens', 'algorithms and keys are not confused']],
  },
  {
    name: 'access tokens for any audience', file: 'saas/auth/sessions/tokens.ts', in: 'parseToken',
    replace: 'aud === audience &&', by: '',
    tests: [['saas/auth/public-tokens', 'the audience is configured, and demanded, with the secret']],
  },
];
