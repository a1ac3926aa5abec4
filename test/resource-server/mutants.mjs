/** @type {import('../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'an approval of another amount passes', file: 'resource-server/service.ts', in: 'createResourceServer',
    replace: 'isDeepStrictEqual(approved, details)', by: 'approved !== undefined',
    tests: [['resource-server/mcp', 'Fastify: a tool can need an approval by a person, of exactly this and once']],
  },
  {
    name: 'an approval counts twice', file: 'resource-server/service.ts', in: 'createResourceServer',
    replace: 'isApproved && (await replay.claim(key, token.expiresAt + SKEW_S * SECOND))', by: 'isApproved',
    tests: [['resource-server/mcp', 'Fastify: a tool can need an approval by a person, of exactly this and once']],
  },
  {
    name: 'tokens for any resource', file: 'resource-server/service.ts', in: 'claimsOf',
    replace: 'audience,', by: '',
    tests: [['resource-server/resource-server', 'only tokens of this issuer for this resource']],
  },
  {
    name: 'tokens of any type', file: 'resource-server/service.ts', in: 'claimsOf',
    replace: "...(typ === 'at+jwt' && { typ }),", by: '',
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
  {
    name: 'any algorithm of a key', file: 'resource-server/service.ts', in: 'claimsOf',
    replace: 'algorithms: [...algorithms],', by: '',
    tests: [['resource-server/resource-server', 'algorithms are pinned for each issuer']],
  },
  {
    name: 'one issuer speaks for another one', file: 'resource-server/service.ts', in: 'sourceOf',
    replace: 'sources.get(String(decodeJwt(token).iss))', by: '[...sources.values()].at(-1)',
    tests: [['resource-server/resource-server', 'of several issuers, each speaks for itself only']],
  },
  {
    name: 'a token of any type of other issuers', file: 'resource-server/service.ts', in: 'claimsOf',
    replace: "typ === 'JWT' && !/^jwt$/i", by: 'false && !/^jwt$/i',
    tests: [['resource-server/resource-server', 'access tokens of other issuers are accepted by their rules']],
  },
  {
    name: 'tools without their scopes', file: 'resource-server/mcp.ts', in: 'callsIn',
    replace: 'Object.hasOwn(tools, name) ?', by: 'false ?',
    tests: [['resource-server/mcp', 'Fastify: a tool needs its scopes']],
  },
  {
    name: 'a body that was not parsed', file: 'resource-server/mcp.ts', in: 'admit',
    replace: "request.method === 'POST' &&", by: 'false &&',
    tests: [['resource-server/mcp', 'Fastify: bodies that were not parsed']],
  },
  {
    name: 'the person of another issuer', file: 'saas/agents/access.ts', in: 'identify',
    replace: "&& token.claims['iss'] === about().issuer", by: '',
    tests: [['saas/agents/tokens', 'an MCP endpoint inside saasBackend']],
  },
];
