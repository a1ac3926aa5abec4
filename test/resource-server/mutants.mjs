/** @type {import('../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'tokens for any resource', file: 'resource-server/service.ts', in: 'claimsOf',
    replace: 'audience: resource,', by: '',
    tests: [['resource-server/resource-server', 'only tokens of this issuer for this resource']],
  },
  {
    name: 'tokens of any type', file: 'resource-server/service.ts', in: 'claimsOf',
    replace: "typ: 'at+jwt',", by: '',
    tests: [['resource-server/resource-server', 'only tokens of this issuer for this resource']],
  },
  {
    name: 'a bound token as a bearer token', file: 'resource-server/service.ts', in: 'requireProof',
    replace: "if (scheme !== 'DPoP')", by: 'if (false)',
    tests: [['resource-server/resource-server', 'a token that is bound to a key needs a proof of it, once']],
  },
  {
    name: 'revoked tokens', file: 'resource-server/service.ts', in: 'verify',
    replace: 'revocations?.includes(claims)', by: 'false',
    tests: [['resource-server/resource-server', 'revoked tokens are refused as soon as the list says so']],
  },
  {
    name: 'a proof for another token', file: 'core/http/dpop.ts', in: 'verify',
    replace: 'ath !== sha256(accessToken)', by: 'false',
    tests: [['resource-server/resource-server', 'a token that is bound to a key needs a proof of it, once']],
  },
  {
    name: 'a used proof', file: 'core/http/dpop.ts', in: 'verify',
    replace: '!(await replay.claim(', by: 'false && !(await replay.claim(',
    tests: [['resource-server/resource-server', 'a token that is bound to a key needs a proof of it, once']],
  },
];
