/** @type {import('../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a stranger connects a provider to an account whose address nobody has verified',
    file: 'federation/service.ts', in: 'connect',
    replace: 'if (!emailVerified && !isProven)', by: 'if (false)',
    tests: [['federation/federation', 'no provider with another address is connected before the address']],
  },
  {
    name: 'the signature of the id_token is not verified', file: 'federation/providers.ts', in: 'discover',
    replace: 'execute: [oidc.enableNonRepudiationChecks, ...execute]', by: 'execute: [...execute]',
    tests: [['federation/federation', 'a response that is wrong in any way signs nobody in']],
  },
  {
    name: 'any nonce fits', file: 'federation/providers.ts', in: 'identify',
    replace: 'expectedNonce: nonce,', by: '',
    tests: [['federation/federation', 'a person signs up with an account of a provider, and signs']],
  },
  {
    name: 'a response of one provider is accepted for another', file: 'federation/service.ts', in: 'finish',
    replace: 'begun.provider !== name ||', by: '',
    tests: [['federation/federation', 'a response belongs to the browser, the provider and the sign-in']],
  },
  {
    name: 'an address that is not verified creates an account', file: 'federation/service.ts',
    in: 'exchange',
    replace: '!identity.emailVerified ||', by: '',
    tests: [['federation/federation', 'an address that the provider has not verified creates no account']],
  },
  {
    name: 'the ticket alone signs in', file: 'federation/service.ts', in: 'redeem',
    replace: '|| sha256(codeVerifier) !== ticket.codeChallenge', by: '',
    tests: [['federation/federation', 'a ticket is worth nothing without the verifier of the application']],
  },
  {
    name: 'the browser returns anywhere', file: 'http/provider-sign-in.ts', in: 'returnAddressOf',
    replace: '!allowed.includes(url.origin) ||', by: '',
    tests: [['federation/federation', 'the browser returns to the application only']],
  },
];
