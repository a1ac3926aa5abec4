import { runMutants } from '../mutants.mjs';

// Breaks the accounts, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits
// with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

const mutants = [
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
];

runMutants('auth', mutants);
