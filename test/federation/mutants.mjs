import { runMutants } from '../mutants.mjs';

// Breaks the sign-in with other providers, one defect at a time, in a copy of the build, and runs the tests that must
// notice. Exits with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

const WRONG = 'a response that is wrong in any way signs nobody in';
const LEAVE_ONE = 'simultaneous removals of a passkey and of providers leave a way to sign in';
const BELONGS = 'a response belongs to the browser, the provider and the sign-in that it answers';

const mutants = [
  {
    name: 'removals of providers look without marks',
    file: 'service.js',
    text: '.some(({ leaving, provider }) => leaving === undefined && providers.has(provider))',
    replacement: '.filter(({ provider }) => providers.has(provider)).length > 1',
    tests: [['explore', LEAVE_ONE]],
  },
  {
    name: 'a refused removal of a provider leaves its mark',
    file: 'service.js',
    text: 'await marks.clear(id, leaving);',
    replacement: '',
    tests: [['explore', LEAVE_ONE]],
  },
  {
    name: 'a removal of a provider ignores that its mark is gone',
    file: 'service.js',
    text: 'deleteOne({ id, userId, leaving })',
    replacement: 'deleteOne({ id, userId })',
    tests: [['explore', LEAVE_ONE]],
  },
  {
    name: 'a passkey that is being removed counts as a way to sign in',
    file: '../passkeys/service.js',
    text: 'count({ account, leaving: null }, 1)) > 0',
    replacement: 'count({ account }, 1)) > 0',
    tests: [['explore', LEAVE_ONE]],
  },
  {
    name: 'a removal of a provider that has crashed stays for ever',
    file: 'service.js',
    text: 'if (known?.leaving !== undefined)',
    replacement: 'if (false)',
    tests: [['explore', 'a sign-in at a provider ends a removal that has crashed']],
  },
  {
    name: 'abandoned sign-ins keep their cookies',
    file: '../http/cookies.js',
    text: 'of(old).clear(reply)',
    replacement: 'void old',
    tests: [['federation', 'a browser keeps the three newest of the sign-ins that it has begun']],
  },
  {
    name: 'the newest sign-ins lose their cookies',
    file: '../http/cookies.js',
    text: '.slice(0, 1 - MAX_COOKIES)',
    replacement: '.slice(MAX_COOKIES - 1)',
    tests: [['federation', 'a browser keeps the three newest of the sign-ins that it has begun']],
  },
  {
    name: 'a stranger connects a provider to an account whose address nobody has verified',
    file: 'service.js',
    text: 'if (!emailVerified && !isProven)',
    replacement: 'if (false)',
    tests: [
      [
        'federation',
        'no provider with another address is connected before the address of the account is verified',
      ],
    ],
  },
  {
    name: 'the signature of the id_token is not verified',
    file: 'providers.js',
    text: 'execute: [oidc.enableNonRepudiationChecks, ...execute]',
    replacement: 'execute: [...execute]',
    tests: [['federation', WRONG]],
  },
  {
    name: 'any nonce fits',
    file: 'providers.js',
    text: 'expectedNonce: nonce,',
    replacement: '',
    tests: [['federation', 'a person signs up with an account of a provider, and signs in with it again']],
  },
  {
    name: 'a response of one provider is accepted for another',
    file: 'service.js',
    text: 'begun.provider !== name || ',
    replacement: '',
    tests: [['federation', BELONGS]],
  },
  {
    name: 'an address that is not verified creates an account',
    file: 'service.js',
    text: '!identity.emailVerified || ',
    replacement: '',
    tests: [['federation', 'an address that the provider has not verified creates no account']],
  },
  {
    name: 'the ticket alone signs in',
    file: 'service.js',
    text: ' || sha256(codeVerifier) !== ticket.codeChallenge',
    replacement: '',
    tests: [['federation', 'a ticket is worth nothing without the verifier of the application, and expires']],
  },
  {
    name: 'the browser returns anywhere',
    file: '../http/provider-sign-in.js',
    text: '!allowed.includes(url.origin) || ',
    replacement: '',
    tests: [['federation', 'the browser returns to the application only']],
  },
  {
    name: 'the last way in is disconnected',
    file: 'service.js',
    text: '!(await keepsOne(userId)) && !(await accounts.hasOtherLogin(userId))',
    replacement: 'false',
    tests: [
      ['federation', 'an account without a password is closed with a recent sign-in, and keeps one way in'],
    ],
  },
  {
    name: 'a second request with a new account of a provider fails',
    file: 'service.js',
    text: 'const late = isEmailTaken(error) &&',
    replacement: 'const late = false &&',
    tests: [['federation', 'concurrent first sign-ins with one account of a provider create one user']],
  },
];

runMutants('federation', mutants);
