import { runMutants } from '../mutants.mjs';

// Breaks the pages for users, one defect at a time, in a copy of the build, and runs the tests that must notice. Run by
// `npm run test:mutants`.

const WANTED = ['user-pages', 'sign-in leads to where the visitor wanted to go, and nowhere else'];
const FOREIGN = ['user-pages', 'a form of another site signs nobody in, up or out'];
const CODE = ['user-pages', 'a mailed code signs in, in the browser that asked for it'];
const PURCHASE = ['user-pages', 'a user buys, changes, cancels and resumes a plan'];
const SESSION = ['user-pages', 'the session is that of the API, and is rotated and revoked like it'];

runMutants('user-pages', [
  {
    name: 'a path that begins with two slashes leaves the site',
    file: 'session.js',
    text: "path.startsWith('//') ? fallback : path",
    replacement: 'path',
    tests: [WANTED],
  },
  {
    name: 'a sign-in continues at any origin',
    file: 'session.js',
    text: 'origins.includes(url.origin)',
    replacement: 'true',
    tests: [WANTED],
  },
  {
    name: 'forms of other sites are accepted',
    file: 'session.js',
    text: 'if (!isTrustedOrigin(headers, [new URL(publicUrl).origin]))',
    replacement: 'if (false)',
    tests: [FOREIGN],
  },
  {
    name: 'the exchanged token is not stored',
    file: 'session.js',
    text: 'if (resumed.refreshToken !== presented)',
    replacement: 'if (false)',
    tests: [SESSION],
  },
  {
    name: 'sign-out needs no form of the session',
    file: 'sign-in.js',
    text: 'guard.checkForm(request);',
    replacement: '',
    tests: [['user-pages', 'signing out ends the session, and only by the form']],
  },
  {
    name: 'a link with a code shows the field in any browser',
    file: 'code.js',
    text: 'if (loginToken === undefined)',
    replacement: 'if (false)',
    tests: [CODE],
  },
  {
    name: 'a purchase needs no form of the session',
    file: 'billing.js',
    text: 'guard.checkForm(given);',
    replacement: '',
    tests: [PURCHASE],
  },
  {
    name: 'a user who returns from the payment page waits for the webhook',
    file: 'billing.js',
    text: 'await Promise.race([fetched, sleep(RETURN_TIMEOUT_MS, undefined, { ref: false })]);',
    replacement: '',
    tests: [PURCHASE],
  },
  {
    name: 'a user who returns during an outage gets no page',
    file: 'billing.js',
    text: ".catch((err) => request.log.warn({ err }, 'the state after a payment could not be fetched'))",
    replacement: '',
    tests: [PURCHASE],
  },
  {
    name: 'a user who returns waits for the provider without end',
    file: 'billing.js',
    text: 'Promise.race([fetched, sleep(RETURN_TIMEOUT_MS, undefined, { ref: false })])',
    replacement: 'fetched',
    tests: [PURCHASE],
  },
]);
