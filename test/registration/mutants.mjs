import { runMutants } from '../mutants.mjs';

// Breaks the registration of clients, one defect at a time, in a copy of the build, and runs the tests that must notice.
// Exits with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

/** @type {import('../mutants.mjs').Mutant[]} */
const mutants = [
  {
    name: 'a token allows any number of registrations',
    file: 'tokens.js',
    text: 'inc: { usesLeft: -1 }',
    replacement: 'inc: { usesLeft: 0 }',
    tests: [
      ['registration', 'an application registers itself with an initial access token'],
      ['registration', 'SQLite: four processes register no more clients than a token allows'],
    ],
  },
  {
    name: 'a use is counted after it was read',
    file: 'service.js',
    text: 'if (!(await tokens.use(tokenId)))',
    replacement: 'if ((await tokens.use(tokenId)) === undefined)',
    tests: [['registration', 'SQLite: four processes register no more clients than a token allows']],
  },
  {
    name: 'a document may name another client',
    file: 'client-ids.js',
    text: "if (stated['client_id'] !== clientId)",
    replacement: 'if (false)',
    tests: [['metadata', 'a document that breaks a rule is refused, and nothing is issued']],
  },
  {
    name: 'a blocked client signs people in',
    file: 'client-ids.js',
    text: 'if ((await documents.find(clientId))?.blockedAt !== undefined)',
    replacement: 'if (false)',
    tests: [['metadata', 'operators see who has signed in to which of them']],
  },
  {
    name: 'a blocked client keeps its tokens',
    file: 'client-ids.js',
    text: 'isBlocked ? endClient(copy.uri, set, actorOf(from)) : set()',
    replacement: 'set()',
    tests: [['metadata', 'operators see who has signed in to which of them']],
  },
  {
    name: 'two texts are one address',
    file: 'client-ids.js',
    text: 'url.href === text',
    replacement: 'true',
    tests: [['metadata', 'only canonical https addresses with a path are identifiers']],
  },
  {
    name: 'a denied host is asked',
    file: 'hosts.js',
    text: '!matchesHost(host, denied)',
    replacement: 'true',
    tests: [['metadata', 'the operator decides which hosts may name themselves']],
  },
  {
    name: 'logout notices go to any host',
    file: 'client-ids.js',
    text: 'new URL(uri).origin === origin',
    replacement: 'true',
    tests: [['metadata', 'a document that breaks a rule is refused, and nothing is issued']],
  },
];

runMutants('registration', mutants);
