import { runMutants } from '../mutants.mjs';

// Breaks the client, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits with 1 when one
// survives or when a text to replace is not found. Run by `npm run test:mutants`.

const TOGETHER = ['client', 'requests that are refused together share one refresh, also one that fails'];
const ENDS = ['client', 'a session ends once, and only when the server says so'];
const LOST = ['client', 'a lost response to a refresh does not end the session'];
const LOGOUT = ['client', 'a logout that does not reach the server leaves the session'];
const OTHER_USER = ['client', 'a request of one user is not repeated for another'];
const DURING = ['client', 'a sign-in or logout during other requests ends the session at most once'];
const ACCOUNT = ['client', 'a user registers, signs in, reads and changes the account, and signs out'];
const HOST = ['client', 'the routes of a host get the token and the same refresh'];
const ORIGINS = ['client', 'the token goes to other origins only if they are named'];
const PUBLIC = ['client', 'public calls send no token, and a refused request is repeated once only'];
const CALL = ['client', 'a request is aborted by its timeout or its signal, and a refresh continues'];
const TABS = [
  'browser',
  'a hundred requests of three tabs need one refresh, and no session is lost, localStorage',
];

const mutants = [
  ...[
    ['a refresh for each request', 'refreshing ??= withTokens', 'refreshing = withTokens', [TOGETHER]],
    [
      'a refresh of what another tab has refreshed',
      'tokens?.accessToken === used?.accessToken',
      'true',
      [TABS],
    ],
    ['any refusal ends the session', 'ENDED.includes(error.code) && ', '', [ENDS]],
    [
      'a lost response is lost',
      "catch {\n            return send('/auth/refresh', body);",
      'catch (error) {\n            throw error;',
      [LOST],
    ],
    ['a logout that only looks like one', "scope === 'others' || !isEnd(error)", 'false', [LOGOUT]],
    ['reads during a write count', 'before === writes && before % 2 === 0', 'true', [DURING]],
  ].map(([name, text, replacement, tests]) => ({ name, file: 'session.js', text, replacement, tests })),
  ...[
    ['a request of another user is repeated', ' || sessionOf(next) !== sessionOf(tokens)', '', [OTHER_USER]],
    ['a stream is sent again', ' || !canRepeat', '', [HOST]],
    ['the token goes to any origin', '!origins.includes(url.origin)', 'false', [ORIGINS]],
    ['public calls send the token', "access === 'public'", 'false', [PUBLIC]],
    ['tokens are returned', 'return others;', 'return content;', [ACCOUNT]],
    ['a deleted account keeps its session', "template === '/user/delete'", 'false', [ACCOUNT]],
  ].map(([name, text, replacement, tests]) => ({ name, file: 'client.js', text, replacement, tests })),
  {
    name: 'tabs do not take turns',
    file: 'tabs.js',
    text: 'if (locks)',
    replacement: 'if (false)',
    tests: [TABS],
  },
  {
    name: 'a call has no limit',
    file: 'exchange.js',
    text: "controller.abort(new SaasError('TIMEOUT', 0))",
    replacement: 'undefined',
    tests: [CALL],
  },
];

runMutants('client', mutants);
