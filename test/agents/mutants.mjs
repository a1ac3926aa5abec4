import { runMutants } from '../mutants.mjs';

// Breaks the access of agents, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits
// with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

const SCOPE = 'a route admits an agent for its scope only, and says which one it needs';
const BELONGS = 'a connection belongs to the browser, the application and the user who confirm it';
const RACE = 'of concurrent connections one succeeds, on SQLite';
const WRONG = 'a token that is wrong in any way is refused';

const mutants = [
  {
    name: 'a route without a scope admits agents',
    file: 'access.js',
    text: 'if (scope === undefined)\n                throw peopleOnly();',
    replacement: '',
    tests: [['agents', SCOPE]],
  },
  {
    name: 'the scope of a route is not required',
    file: 'access.js',
    text: '{ scopes: [scope] }',
    replacement: '{}',
    tests: [['agents', SCOPE]],
  },
  {
    name: 'an agent acts as a person',
    file: 'access.js',
    text: 'isPerson ? await deps.userOf(token.subject) : null',
    replacement: 'await deps.userOf(token.subject)',
    tests: [['tokens', WRONG]],
  },
  {
    name: 'requests of agents are not counted',
    file: 'access.js',
    text: 'if (rejection)',
    replacement: 'if (false)',
    tests: [['tokens', 'requests count for each person and agent, from any address']],
  },
  {
    name: 'a ticket is worth something without the verifier',
    file: 'service.js',
    text: ' || sha256(codeVerifier) !== ticket.codeChallenge',
    replacement: '',
    tests: [['agents', BELONGS]],
  },
  {
    name: 'an account with an address that nobody has confirmed is connected',
    file: 'service.js',
    text: 'if (!emailVerified)',
    replacement: 'if (false)',
    tests: [['agents', BELONGS]],
  },
  {
    name: 'a user gets several accounts',
    file: 'store.js',
    text: "unique: ['owner'], ",
    replacement: '',
    tests: [['tokens', RACE]],
  },
  {
    name: 'an account belongs to several users',
    file: 'store.js',
    text: 'JSON.stringify([issuer, subject])',
    replacement: 'JSON.stringify([issuer, subject, Math.random()])',
    tests: [['tokens', RACE]],
  },
  {
    name: 'an agent is connected as a person',
    file: 'service.js',
    text: "(identity.kind ?? 'human') === 'human'",
    replacement: 'true',
    tests: [['tokens', RACE]],
  },
  {
    name: 'a proof works at each process',
    file: 'module.js',
    text: '.then(() => true, nullIfTaken)) !== null',
    replacement: '.then(() => true, () => true)) !== null',
    tests: [['tokens', 'a token that is bound to a key needs a proof, which works once in all processes']],
  },
];

runMutants('agents', mutants);
