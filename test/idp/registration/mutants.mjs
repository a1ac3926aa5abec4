/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'clients register without a token while that is off', file: 'idp/registration/plugin.ts', in: 'registrationGuard',
    replace: 'registration.isOpen && ', by: '',
    tests: [['idp/registration/registration', 'without a usable token nothing is registered']],
  },
  {
    name: 'whoever registers without a token returns to any program', file: 'idp/registration/service.ts', in: 'register',
    replace: '{ ...rules, redirectUri: rules.openRedirectUri }', by: 'rules',
    tests: [['idp/registration/registration', 'with IDP_MCP, a client registers itself without a token']],
  },
  {
    name: 'a use is counted without a condition', file: 'idp/registration/tokens.ts', in: 'using',
    replace: '{ id, ...usable() }', by: '{ id }',
    tests: [['idp/oidc/processes', 'four processes share one store of SQLite']],
  },
  {
    name: 'a document may name another client', file: 'idp/registration/client-ids.ts', in: 'read',
    replace: "if (stated['client_id'] !== clientId)", by: 'if (false)',
    tests: [['idp/registration/metadata', 'a document that breaks a rule is refused, and nothing is issued']],
  },
  {
    name: 'a blocked client signs people in', file: 'idp/registration/client-ids.ts', in: 'resolve',
    replace: 'if ((await documents.find(clientId))?.blockedAt !== undefined)', by: 'if (false)',
    tests: [['idp/registration/metadata', 'operators see who has signed in to which of them']],
  },
];
