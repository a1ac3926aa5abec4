import { runMutants } from '../mutants.mjs';
import { hostMutants } from './host-mutants.mjs';

// Breaks the accounts, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits
// with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

const mutants = [
  {
    name: 'the event of a new account is stored for its webhooks before the response',
    file: 'registration.js',
    text: 'const { reset, verify } =',
    replacement: 'if (isNew) await announced.emit(); const { reset, verify } =',
    tests: [
      ['registration', 'with webhooks, too, a known address takes as many calls of the store as a new one'],
    ],
  },
  {
    name: 'the event of a repeated registration stays announced',
    file: 'registration.js',
    text: 'announced.withdraw()',
    replacement: 'undefined',
    tests: [
      ['registration', 'with webhooks, too, a known address takes as many calls of the store as a new one'],
    ],
  },
  {
    name: 'a repetition is recorded before the response',
    file: 'registration.js',
    text: 'const { reset, verify } =',
    replacement:
      "if (found) await audit.recordFailure({ event: 'registration.repeated', subject: found.id, ip }); const { reset, verify } =",
    tests: [
      ['registration', 'with webhooks, too, a known address takes as many calls of the store as a new one'],
    ],
  },
  {
    name: 'of two concurrent registrations of a new address the second one takes longer',
    file: 'registration.js',
    text: 'const isNew =',
    replacement: 'if (!found) await findExisting(); const isNew =',
    tests: [
      [
        'registration',
        'two concurrent registrations take as many calls for a known address as for a new one',
      ],
    ],
  },
  {
    name: 'an account that was never stored is recorded',
    file: 'registration.js',
    text: 'if (isNew) {',
    replacement: 'if (isNew || !(await findExisting())) {',
    tests: [
      [
        'registration',
        'in every interleaving with a deletion, an account is recorded if and only if it was stored',
      ],
    ],
  },
  {
    name: 'a repeated registration is not committed',
    file: 'registration.js',
    text: 'users.changeOne({ id: found.id }, { set: { registrationRepeatedAt: clock.now() } })',
    replacement: 'undefined',
    tests: [
      [
        'accounts',
        'a repeated registration is committed like a new one, also when its audit record is only summarized',
      ],
    ],
  },
  {
    name: 'pages of other origins use the cookie',
    file: 'browser-sessions.js',
    text: 'return isTrustedOrigin(headers, origins()) ?',
    replacement: 'return true ?',
    tests: [['browser-sessions', 'pages of other origins cannot use the cookie, unless they are named']],
  },
  {
    name: 'a request without the header uses the cookie',
    file: 'browser-sessions.js',
    text: 'const needsToken = usesCookie(request) &&',
    replacement: 'const needsToken =',
    tests: [['browser-sessions', 'a client that does not ask is not affected by a cookie']],
  },
  {
    name: 'the refresh token is in the cookie and in the body',
    file: 'browser-sessions.js',
    text: 'return done(null, { ...payload, data });',
    replacement: 'return done(null, payload);',
    tests: [['browser-sessions', 'a client that asks for a cookie gets the refresh token in no other place']],
  },
  {
    name: 'a replaced session goes on',
    file: 'browser-sessions.js',
    text: 'if (isSignIn)',
    replacement: 'if (false)',
    tests: [['browser-sessions', 'a new sign-in ends the session that its cookie replaces']],
  },
  {
    name: 'logout leaves the cookie',
    file: 'browser-sessions.js',
    text: "ended !== 'others'",
    replacement: 'false',
    tests: [['browser-sessions', 'logout ends the session of the cookie and removes the cookie']],
  },
  {
    name: 'the password alone opens an account with a second factor',
    file: 'service.js',
    text: 'await secondFactorStep?.demand(user, FIRST_FACTOR.password, origin);',
    replacement: '',
    tests: [['second-factor', 'a user sets up an authenticator app, and sign-in asks for its code']],
  },
  {
    name: 'a challenge fits every purpose',
    file: 'second-factor.js',
    text: 'aud === audience(purpose) &&',
    replacement: '',
    tests: [
      ['second-factor', 'a challenge is worth nothing as a token, for another purpose, or after a change'],
    ],
  },
  {
    name: 'a challenge survives a new password',
    file: 'second-factor.js',
    text: 'user.sessionEpoch !== claims.epoch || ',
    replacement: '',
    tests: [
      ['second-factor', 'a challenge is worth nothing as a token, for another purpose, or after a change'],
    ],
  },
  {
    name: 'a second factor is set up for an address that nobody has verified',
    file: 'second-factor-plugin.js',
    text: 'if (!emailVerified)',
    replacement: 'if (false)',
    tests: [['second-factor', 'nobody sets up a factor before the address is verified, or twice']],
  },
  {
    name: 'every session counts as recent',
    file: 'recent-auth.js',
    text: 'if (age > maxAge * SECOND)',
    replacement: 'if (false)',
    tests: [['second-factor', 'routes can require a recent proof of the user, and a second factor']],
  },
  {
    name: 'a reset keeps a pending change of the address',
    file: 'password-reset.js',
    text: "unset: [...ALL_LINK_FIELDS, 'keptSession']",
    replacement: "unset: ['resetHash', 'resetExpiresAt', 'keptSession']",
    tests: [['confirmation', 'a password reset by e-mail cancels a pending change of address']],
  },
  {
    name: 'the link of a change never expires',
    file: 'email-change.js',
    text: ' || !isValid',
    replacement: '',
    tests: [['confirmation', 'the link that changes an address expires after a day']],
  },
  {
    name: 'any password counts as the current one',
    file: 'confirm-address.js',
    text: 'if (ok)',
    replacement: 'if (true)',
    tests: [
      [
        'confirmation',
        'a required confirmation from another browser replaces the password set at registration',
      ],
    ],
  },
  {
    name: 'the session of any account proves that a link is used by its holder',
    file: 'confirm-address.js',
    text: 'identity?.user.id === id',
    replacement: 'identity',
    tests: [['confirmation', 'a session proves only its own account, and only until it ends']],
  },
  {
    name: 'a confirmation from elsewhere keeps sessions',
    file: 'confirm-address.js',
    text: 'passwordVersion: 1, sessionEpoch: 1',
    replacement: 'passwordVersion: 1',
    tests: [
      [
        'confirmation',
        'a later confirmation from another browser ends the sessions and links of the registration',
      ],
    ],
  },
  {
    name: 'a confirmation from elsewhere keeps a pending change of the address',
    file: 'confirm-address.js',
    text: "unset: [...ALL_LINK_FIELDS, 'keptSession']",
    replacement: "unset: ['verifyHash', 'verifyExpiresAt', 'keptSession']",
    tests: [
      [
        'confirmation',
        'a later confirmation from another browser ends the sessions and links of the registration',
      ],
    ],
  },
  {
    name: 'only the hash of the account itself is verified',
    file: 'credentials.js',
    text: 'await foreignHashes.decoys()',
    replacement: '[]',
    tests: [['foreign-hashes', 'a wrong password costs the same hashing work for every account']],
  },
  {
    name: 'a bcrypt hash is not filled up to the most costly one',
    file: '../passwords/foreign.js',
    text: 'Math.log2(target) - log',
    replacement: '0',
    tests: [['foreign-hashes', 'a wrong password costs the same hashing work for every account']],
  },
  {
    name: 'a reconciliation forgets users that are about to be stored',
    file: 'foreign-hashes.js',
    text: '!user && isRecent(',
    replacement: 'false && isRecent(',
    tests: [['foreign-hashes', 'a recount finds imported hashes of earlier versions']],
  },
  {
    name: 'an unanswered reset is repeated with any password',
    file: 'password-reset.js',
    text: 'ok ? user : null',
    replacement: 'user',
    tests: [['links-outage', 'a reset has one outcome, even if a thief has the link']],
  },
  {
    name: 'an unanswered confirmation is repeated with any password',
    file: 'confirm-address.js',
    text: 'if (!ok)',
    replacement: 'if (false)',
    tests: [
      ['links-outage', 'a confirmation with a new password has one outcome, even if a thief has the link'],
    ],
  },
  {
    name: 'an unanswered change of the password is repeated with any password',
    file: 'account.js',
    text: 'return ok;',
    replacement: 'return true;',
    tests: [['links-outage', 'a change of the password has one outcome, even if a thief has the link']],
  },
  {
    name: 'an unanswered unlock is repeated from any address',
    file: 'unlock.js',
    text: 'addressBlock(ip)',
    replacement: "''",
    tests: [['links-outage', 'an unlock has one outcome, even if a thief has the link']],
  },
  {
    name: 'a link that was used with an answer can be repeated',
    file: '../ops/used-links.js',
    text: 'unset: UNANSWERED_LINK_FIELDS',
    replacement: 'set: { usedLinkHash }',
    tests: [
      ['links-outage', 'a reset without an answer is repeated with success, and everything is completed'],
    ],
  },
  {
    name: 'a mailed code can be tried without end',
    file: 'email-login.js',
    text: 'attemptsLeft: { gt: 0 } }, {',
    replacement: '}, {',
    tests: [['email-login', 'five wrong codes end a request, also if they are sent at once']],
  },
  {
    name: 'the attempts of a mailed code are counted afterwards',
    file: 'email-login.js',
    text: '{ inc: { attemptsLeft: -1 } }',
    replacement: '{ inc: { attemptsLeft: 0 } }',
    tests: [['login-codes-outage', 'parallel requests compare no more codes than attempts are left']],
  },
  {
    name: 'any mailed code is right',
    file: 'email-login.js',
    text: '!isSecretOf(textOf(secret, code), counted.codeHash)',
    replacement: 'false',
    tests: [['email-login', 'five wrong codes end a request, also if they are sent at once']],
  },
  {
    name: 'an older login token uses up the attempts of a newer code',
    file: 'email-login.js',
    text: `requestHash: sha256(secret),
            usedLinkHash`,
    replacement: 'usedLinkHash',
    tests: [['email-login', 'a code ends with a newer request and with whatever ends all sessions']],
  },
  {
    name: 'a mailed code works several times',
    file: 'email-login.js',
    text: 'usedLinkHash: null,',
    replacement: '',
    tests: [['email-login', 'of parallel requests with the right code, one signs in']],
  },
  {
    name: 'wrong codes reveal which addresses have an account',
    file: 'email-login.js',
    text: 'await storeRequest(sha256(email), {',
    replacement: "await storeRequest(sha256(user ? email : ''), {",
    tests: [['email-login', 'nothing reveals whether an address has an account, not even wrong codes']],
  },
  {
    name: 'codes are mailed to suspended accounts',
    file: 'email-login.js',
    text: 'user ? !isDisabled(user) :',
    replacement: 'user ? true :',
    tests: [['email-login', 'nothing reveals whether an address has an account, not even wrong codes']],
  },
  {
    name: 'the owner of a mistyped address learns where a code was requested',
    file: 'email-login.js',
    text: 'user?.emailVerified ? origin : undefined',
    replacement: 'origin',
    tests: [['email-login', 'the link is harmless for mail scanners, and says where the request came from']],
  },
  {
    name: 'one client uses up the codes of an address',
    file: 'email-login.js',
    text: 'await throttle.countKey(authLimits.loginCodeFrom',
    replacement: 'await throttle.tryCountKey(authLimits.loginCodeFrom',
    tests: [['email-login', 'requests are limited by client, and mails by address']],
  },
  {
    name: 'a stranger keeps the password after a mailed code',
    file: 'code-accounts.js',
    text: "'passwordHash', ...ALL",
    replacement: '...ALL',
    tests: [
      ['email-login', 'an account that a stranger registered belongs to the owner of the address alone'],
    ],
  },
  {
    name: 'a stranger keeps the sessions after a mailed code',
    file: 'code-accounts.js',
    text: 'inc: { passwordVersion: 1, sessionEpoch: 1 }',
    replacement: 'inc: { passwordVersion: 1 }',
    tests: [
      ['email-login', 'an account that a stranger registered belongs to the owner of the address alone'],
    ],
  },
  {
    name: 'a crash leaves the credentials of a stranger in a verified account',
    file: 'code-accounts.js',
    text: 'await deps.forgetCredentials(id);',
    replacement: '',
    tests: [
      [
        'login-codes-outage',
        'a code for an account of a stranger is completed by a repetition, whenever its process crashes',
      ],
    ],
  },
  {
    name: 'a mailed code opens an account with a second factor',
    file: 'code-accounts.js',
    text: 'await deps.secondFactorStep?.demand(user, FIRST_FACTOR.code, origin);',
    replacement: '',
    tests: [['email-login', 'a code is the first factor: the second one is demanded']],
  },
  {
    name: 'a mailed code that was answered with a challenge can be repeated',
    file: 'code-accounts.js',
    text: 'return { refusal: error };',
    replacement: 'throw error;',
    tests: [['email-login', 'a code is the first factor: the second one is demanded']],
  },
  {
    name: 'a mailed code outlives the end of all sessions',
    file: 'code-accounts.js',
    text: '|| user?.sessionEpoch === epoch)',
    replacement: '|| true)',
    tests: [['email-login', 'a code ends with a newer request and with whatever ends all sessions']],
  },
  {
    name: 'a mailed code creates a deleted account again',
    file: 'code-accounts.js',
    text: '!user && userId === undefined',
    replacement: '!user',
    tests: [['email-login', 'a code ends with a newer request and with whatever ends all sessions']],
  },
  {
    name: 'a mailed code registers while registration is closed',
    file: 'code-accounts.js',
    text: '!(await deps.registrationAllowed())',
    replacement: 'false',
    tests: [
      ['email-login', 'a new address gets an account without a password, while registration is allowed'],
    ],
  },
  {
    name: 'a repetition does not find the account that it has taken over',
    file: 'code-accounts.js',
    text: 'user?.usedLinkHash === use.usedLinkHash && user.sessionEpoch === epoch + 1',
    replacement: 'false',
    tests: [
      [
        'login-codes-outage',
        'a code for an account of a stranger without an answer is repeated with success, and once',
      ],
    ],
  },
  {
    name: 'the location of a sign-in with a code stays unknown',
    file: 'code-accounts.js',
    text: 'throttle.trust(user.email, origin.ip),',
    replacement: '',
    tests: [['email-login', 'the location of a sign-in with a code is known to the account']],
  },
];

runMutants('auth', [...mutants, ...hostMutants]);
