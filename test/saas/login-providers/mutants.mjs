/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a stranger connects a provider to an account whose address is not verified',
    file: 'saas/login-providers/service.ts', in: 'connect',
    replace: 'if (!emailVerified && !isProven)', by: 'if (false)',
    tests: [['saas/login-providers/federation', 'no provider with another address is connected before the address']],
  },
  {
    name: 'the signature of the id_token is not verified', file: 'saas/login-providers/providers.ts',
    replace: 'oidc.enableNonRepudiationChecks(configuration);', by: '',
    tests: [['saas/login-providers/federation', 'a response that is wrong in any way starts no session']],
  },
  {
    name: 'any nonce fits', file: 'saas/login-providers/providers.ts', in: 'redeem',
    replace: 'expectedNonce: nonce', by: "expectedNonce: String(claims['nonce'])",
    tests: [['saas/login-providers/federation', 'a response that is wrong in any way starts no session']],
  },
  {
    name: 'a response of one provider is accepted for another', file: 'saas/login-providers/service.ts', in: 'finish',
    replace: 'if (begun.provider !== name)', by: 'if (false)',
    tests: [['saas/login-providers/federation', 'a response belongs to the browser, the provider and the sign-in']],
  },
  {
    name: 'an address that is not verified creates an account', file: 'saas/login-providers/service.ts',
    in: 'userOf',
    replace: '!emailVerified ||', by: '',
    tests: [['saas/login-providers/federation', 'an address that the provider has not verified creates no account']],
  },
  {
    name: 'the ticket alone signs in', file: 'core/outbound/provider-sign-in.ts', in: 'redeem',
    replace: '|| sha256(codeVerifier) !== ticket.codeChallenge', by: '',
    tests: [['saas/login-providers/federation', 'a ticket is worth nothing without the verifier of the application']],
  },
  {
    name: 'the browser returns anywhere', file: 'core/outbound/provider-sign-in.ts', in: 'returnAddressOf',
    replace: '!allowed.includes(url.origin) ||', by: '',
    tests: [['saas/login-providers/federation', 'the browser returns to the application only']],
  },
  {
    name: 'a nonce may be absent', file: 'saas/login-providers/provider-responses.ts', in: 'knowsNonce',
    replace: 'code_challenge_methods_supported !== undefined ||', by: '',
    tests: [['saas/login-providers/federation', 'a provider without nonces signs people in, unless its metadata']],
  },
  {
    name: 'the addresses of any tenant are trusted', file: 'saas/login-providers/provider-responses.ts', in: 'issuerProblem',
    replace: 'if (hasTenants && trustEmail)', by: 'if (false)',
    tests: [['saas/login-providers/federation', 'the issuer of a provider for many tenants is that of the tenant']],
  },
  {
    name: 'the metadata of another provider are used', file: 'saas/login-providers/provider-responses.ts', in: 'issuerProblem',
    replace: 'found?.hostname === expected.hostname &&', by: '',
    tests: [['saas/login-providers/federation', 'the issuer of a provider for many tenants is that of the tenant']],
  },
  {
    name: 'an answer of a provider is read to its end', file: 'core/outbound/bounded-fetch.ts', in: 'readBody',
    replace: 'if (size > MAX_BYTES)', by: 'if (false)',
    tests: [['core/outbound/bounded-fetch', 'a longer one is refused, and not read to its end']],
  },
  {
    name: 'a ticket is used as often as wanted', file: 'core/ops/single-use.ts', in: 'run',
    replace: 'if (!(await claim(id, expiresAt)))', by: 'if (false)',
    tests: [['saas/login-providers/federation', 'a ticket is used once, by however many requests at the same time']],
  },
  {
    name: 'every sign-in at a provider is recent', file: 'saas/auth/sessions/sessions.ts', in: 'newSession',
    replace: '...(authenticatedAt !== undefined && { authenticatedAt: Math.min(authenticatedAt, now) }),', by: '',
    tests: [['saas/login-providers/federation', 'a sign-in at a provider is as recent as the provider says']],
  },
];
