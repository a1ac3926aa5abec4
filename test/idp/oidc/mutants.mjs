/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a poll gets a token after the end of the request', file: 'idp/oidc/pending.ts', in: 'createPendingRequests',
    replace: 'if (!isOpen(stored)) throw oidcErrors.expired_token();', by: '',
    tests: [['idp/oidc/approvals', 'a denied or expired request gets no token, and a second click says what was decided']],
  },
  {
    name: 'an old sign-in decides an approval', file: 'idp/oidc/approvals/service.ts', in: 'createApprovals',
    replace: 'return !isFresh ||', by: 'return false &&',
    tests: [['idp/oidc/approvals', 'the sign-in must be recent, also when the form is sent']],
  },
  {
    name: 'an old sign-in approves for an application', file: 'idp/oidc/authorize/interaction.ts', in: 'requiredInteraction',
    replace: 'mustSignIn ||', by: '',
    tests: [['idp/oidc/approvals', 'at /authorize, the sign-in must be recent, and a password alone approves nothing']],
  },
  {
    name: 'another person decides an approval', file: 'idp/oidc/approvals/service.ts', in: 'createApprovals',
    replace: 'stored?.sub === sub && pending', by: 'stored && pending',
    tests: [['idp/oidc/approvals', 'another person, and a browser without a sign-in, see nothing and decide nothing']],
  },
  {
    name: 'a sign-in approves without the page', file: 'idp/oidc/authorize/service.ts', in: 'refuseUnasked',
    replace: '(delegation || details) && !wasAsked', by: 'delegation && !wasAsked',
    tests: [['idp/oidc/approvals', 'at /authorize, the sign-in must be recent, and a password alone approves nothing']],
  },
  {
    name: 'an approval keeps the scopes of the provider', file: 'idp/oidc/authorize/request.ts', in: 'validateAuthorizationRequest',
    replace: "{ ...shared, scope: '', ...asked }", by: '{ ...shared, ...asked }',
    tests: [['idp/oidc/approvals', 'a person approves one action for an application in the browser, each time']],
  },
  {
    name: 'a type of another resource is approved', file: 'idp/oidc/approvals/details.ts', in: 'readDetails',
    replace: 'named.length > 0 ?', by: 'false ?',
    tests: [['idp/oidc/approvals', 'a type that two resources have needs the parameter resource']],
  },
  {
    name: 'a request without a scope gets sensitive ones', file: 'idp/oidc/resources.ts', in: 'withDefaultScopes',
    replace: 'sensitive ? [] : [name]', by: '[name]',
    tests: [['idp/oidc/resources', 'without a scope, a resource gives those that are not sensitive']],
  },
  {
    name: 'an agent without a permission gets default scopes', file: 'idp/oidc/admission.ts', in: 'findRefusal',
    replace: '!(isDefault && missing.length < scopes.length)', by: '!isDefault',
    tests: [['idp/oidc/resources', 'without a scope, a resource gives those that are not sensitive']],
  },
  {
    name: 'a token of a client works for the agent that has its metadata later', file: 'idp/oidc/tokens/issuance.ts', in: 'findAllowedOwner',
    replace: 'if (client.agent?.id !== (isClient ? agent : grant.approval?.agent)) return null;', by: '',
    tests: [['idp/oidc/agent-clients', 'public metadata must return to the web, and is no agent without its link']],
  },
  {
    name: 'an agent as a client gets a token without a delegation', file: 'idp/oidc/authorize/request.ts', in: 'readDelegation',
    replace: '!isAsked && !client.agent', by: '!isAsked',
    tests: [['idp/oidc/agent-clients', 'an ordinary sign-in of a person lets the agent act for the person']],
  },
  {
    name: 'an agent asks for another one', file: 'idp/oidc/delegations/request.ts', in: 'findDelegationRequest',
    replace: 'client.agent && actor !== client.agent.id', by: 'false',
    tests: [['idp/oidc/agent-clients', 'requests of an agent that are not complete are refused']],
  },
  {
    name: 'anybody presents a public agent that returns to a device', file: 'idp/registration.ts', in: 'createDirectory',
    replace: "!isPublicClient(client) || client.redirectUris.every((uri) => uri.startsWith('https:'))", by: 'true',
    tests: [['idp/oidc/agent-clients', 'public metadata must return to the web, and is no agent without its link']],
  },
  {
    name: 'a stopped agent is an ordinary client', file: 'idp/registration.ts', in: 'createDirectory',
    replace: 'if (agent?.clientMetadata !== client.id) return { problem: STOPPED };', by: 'if (agent?.clientMetadata !== client.id) return client;',
    tests: [['idp/oidc/agent-clients', 'public metadata must return to the web, and is no agent without its link']],
  },
  {
    name: 'a client with the profile FAPI 2.0 sends its request through the browser', file: 'idp/oidc/authorize/plugin.ts', in: 'requirePush',
    replace: "'error' in validated || !validated.request.client.profile", by: 'true',
    tests: [['idp/oidc/fapi2', 'a request must be pushed, with PKCE, and survives a reload until its code']],
  },
  {
    name: 'a refresh without the profile gets a token without a key', file: 'idp/oidc/tokens/redeem.ts', in: 'consume',
    replace: '...(client.profile && { requiresKey: true as const }),', by: '',
    tests: [['idp/oidc/fapi2', 'every token is bound to a key, and no refresh gets one that is not']],
  },
  {
    name: 'an assertion of the profile has several audiences', file: 'idp/oidc/client-assertion.ts', in: 'createClientAssertions',
    replace: 'if (client.profile && aud !== issuer()) return FAPI_AUDIENCE;', by: '',
    tests: [['idp/oidc/fapi2', 'only an assertion for the issuer, with times and an algorithm of the profile, authenticates']],
  },
  {
    name: 'scopes of several resources name one of them', file: 'idp/oidc/resources.ts', in: 'impliedBy',
    replace: 'owner && others.length === 0', by: 'owner',
    tests: [['idp/oidc/resources', 'the scopes of one resource name it']],
  },
  {
    name: 'a decision on a device replaces another one', file: 'idp/oidc/pending.ts', in: 'decide',
    replace: "changing({ id, state: 'pending', expiresAt }", by: 'changing({ id, expiresAt }',
    tests: [['idp/oidc/device', 'of decisions and polls at the same time, one counts']],
  },
  {
    name: 'a device code works for every client', file: 'idp/oidc/pending.ts', in: 'poll',
    replace: 'stored?.clientId !== client.id', by: '!stored',
    tests: [['idp/oidc/device', 'a wrong, foreign, denied or expired device code']],
  },
  {
    name: 'a family that was refreshed meanwhile is removed', file: 'idp/oidc/purge.ts', in: 'removeUnchanged',
    replace: 'deleteMany({ id: { in: ids }, revision })', by: 'deleteMany({ id: { in: ids } })',
    tests: [['idp/oidc/purge', 'a family that is refreshed']],
  },
  {
    name: 'a code is redeemed twice', file: 'idp/oidc/tokens/redeem.ts', in: 'consume',
    replace: 'consumedAt: null,', by: '',
    tests: [['idp/oidc/token', 'a replayed code is refused and revokes the tokens issued for it, however late']],
  },
  {
    name: 'a refresh token is exchanged twice', file: 'idp/oidc/tokens/refresh.ts',
    in: 'renew',
    replace: 'id, revision: grant.revision ?? null, revokedAt: null', by: 'id, revokedAt: null',
    tests: [['idp/oidc/refresh', 'concurrent refreshes with different scopes all receive the scope of the first']],
  },
  {
    name: 'only the newest two refresh tokens of a family count as stolen', file: 'idp/oidc/tokens/refresh.ts',
    in: 'exchangeToken',
    replace: 'isPrevious || isIssuedRefreshToken(id, token, deps.seeds)', by: 'isPrevious',
    tests: [['idp/oidc/refresh', 'a token older than the previous one counts as reuse at once']],
  },
  {
    name: 'a workload of another audience is accepted', file: 'idp/oidc/workloads.ts', in: 'mismatchOf',
    replace: '![claims.aud].flat().includes(audience ?? ownIssuer)', by: 'false',
    tests: [['idp/oidc/workloads', 'a token that a rule does not accept exactly is refused']],
  },
  {
    name: 'a subject may go on after the pattern', file: 'idp/oidc/workloads.ts', in: 'matches',
    replace: 'text.length - last.length >= end && text.endsWith(last)', by: 'text.includes(last)',
    tests: [['idp/oidc/workloads', 'the pattern is compared with the whole subject']],
  },
  {
    name: 'the signature of a workload is not verified', file: 'idp/oidc/workloads.ts', in: 'createWorkloads',
    replace: '(await verifyByIssuer(assertion, rule, ip, deps)).problem', by: 'null',
    tests: [['idp/oidc/workloads', 'a token that a rule does not accept exactly is refused']],
  },
  {
    name: 'the first of several agents is taken', file: 'idp/oidc/workloads.ts', in: 'createWorkloads',
    replace: 'if (agents.length === 1) return', by: 'if (agents.length > 0) return',
    tests: [['idp/oidc/workloads', 'without a client_id, the rules of exactly one agent must match']],
  },
  {
    name: 'a pattern matches the workloads of others', file: 'idp/provisioning/agent-workloads.ts', in: 'subjectProblem',
    replace: "!subject.includes('*') || FIXED_START.test(subject)", by: 'true',
    tests: [['idp/oidc/workloads', 'a rule that would accept the workloads of others is refused']],
  },
  {
    name: 'the refresh token of a public client does not rotate', file: 'idp/oidc/tokens/refresh.ts',
    in: 'isSenderConstrained',
    replace: 'refreshKey !== undefined || !isPublicClient(client)', by: 'true',
    tests: [['idp/oidc/refresh', 'a token older than the previous one counts as reuse at once']],
  },
  {
    name: 'a repetition by a client that authenticates ends its grant', file: 'idp/oidc/tokens/refresh.ts',
    in: 'exchangeToken',
    replace: 'if (isStolen && !isSenderConstrained(client, grant))', by: 'if (isStolen)',
    tests: [['idp/oidc/refresh', 'the refresh token of a client that authenticates stays the same']],
  },
  {
    name: 'an access token of an algorithm that the API never had', file: 'idp/oidc/tokens/jwt-access-token.ts', in: 'readAccessToken',
    replace: 'resource && algorithmsOf(resource)', by: 'undefined',
    tests: [['idp/oidc/es256', 'an API chooses the signature of its access tokens']],
  },
  {
    name: 'a key for RS256 verifies PS256', file: 'core/kernel/public-jwk.ts', in: 'fitsAlgorithm',
    replace: '(key.alg ?? algorithm) === algorithm', by: 'true',
    tests: [['idp/oidc/client-keys', 'a client may sign with an RSA key']],
  },
  {
    name: 'an RSA key of any size is verified', file: 'core/kernel/public-jwk.ts', in: 'readRsaKey',
    replace: 'bits < MIN_RSA_BITS || bits > MAX_RSA_BITS', by: 'false',
    tests: [['idp/oidc/client-keys', 'only public keys']],
  },
  {
    name: 'only the key that signs is published', file: 'idp/oidc/keys.ts', in: 'createKeys',
    replace: 'keys: pairs.map((pair) => pair.jwk)', by: 'keys: pairs.slice(0, 1).map((pair) => pair.jwk)',
    tests: [['idp/oidc/discovery', 'the next and the previous key are published beside the signing key']],
  },
  {
    name: 'a form is not bound to its cookie', file: 'idp/oidc/authorize/interaction-token.ts',
    in: 'authenticate',
    replace: 'sha256(cookie)', by: "sha256('')",
    tests: [['idp/oidc/sign-in', 'a form is accepted only from the browser that it was shown in']],
  },
  {
    name: 'a name may resolve to a private address', file: 'core/outbound/request.ts', in: 'checkedLookup',
    replace: '!addresses.every(({ address }) => isAdmitted(address))', by: 'false',
    tests: [['idp/oidc/backchannel', 'only public addresses are called']],
  },
  {
    name: 'an assertion is accepted twice', file: 'idp/oidc/client-assertion.ts', in: 'verify',
    replace: "return isFirst ? null : 'The assertion was used before.';", by: 'return null;',
    tests: [['idp/oidc/client-keys', 'an assertion is used once, also if the request fails']],
  },
  {
    name: 'an assertion for another server is accepted', file: 'idp/oidc/client-assertion.ts', in: 'problemOf',
    replace: 'if (!isForToken && !isOnlyAudience(issuer(), aud))', by: 'if (false)',
    tests: [['idp/oidc/client-keys', 'an assertion that is not one of this client for this issuer is refused']],
  },
  {
    name: 'a revoked token for a resource is active', file: 'idp/oidc/tokens/introspection.ts',
    in: 'findAccessTokenFor',
    replace: 'isRevoked || !grant', by: '!grant',
    tests: [['idp/oidc/resources', 'an ended access is inactive for the resource server']],
  },
  {
    name: 'any type of token is an id_token', file: 'idp/oidc/keys.ts', in: 'verify',
    replace: 'protectedHeader.typ !== type', by: 'false',
    tests: [['idp/oidc/resources', 'an access token is no hint for sign-in or sign-out']],
  },
  {
    name: 'consent to one scope of a resource is consent to all', file: 'idp/oidc/consents.ts', in: 'missingIn',
    replace: 'known && missing.length === 0', by: 'known',
    tests: [['idp/oidc/resource-consents', 'new scopes ask again, for the new ones only']],
  },
  {
    name: 'a refresh token works without its key', file: 'idp/oidc/tokens/refresh.ts', in: 'renew',
    replace: 'const key = await findProvenKey(prove, grant.refreshKey, target, deps); const scope',
    by: 'const key = await findProvenKey(prove, undefined, target, deps); const scope',
    tests: [['idp/oidc/dpop', 'the refresh token of a public client works with its key only']],
  },
  {
    name: 'a bound token is accepted as a bearer token', file: 'idp/oidc/tokens/introspection.ts', in: 'userinfo',
    replace: '|| (found.issued.key === undefined) !== (prove === undefined)', by: '',
    tests: [['idp/oidc/dpop', 'an opaque token that is bound to a key needs a proof at /userinfo']],
  },
  {
    name: 'proofs are not remembered', file: 'idp/oidc/proofs.ts', in: 'createProofs',
    replace: 'createSingleUse(usedProofs)', by: '{ claim: async () => true }',
    tests: [['idp/oidc/processes', 'four processes share one store of SQLite']],
  },
  {
    name: 'a proof needs no nonce', file: 'idp/oidc/proofs.ts', in: 'verify',
    replace: 'accessToken === undefined ? withNonce : withoutNonce', by: 'withoutNonce',
    tests: [['idp/oidc/dpop', 'an invalid proof uses up neither a code nor a refresh token']],
  },
  {
    name: 'a removed key ends no tokens', file: 'idp/provisioning/agent-keys.ts', in: 'change',
    replace: '...(isRemoval && { epoch: 1 })', by: '',
    tests: [['idp/oidc/agent-keys', 'removing a key ends the tokens of the agent; a disabled agent gets none']],
  },
  {
    name: 'any client uses a pushed request', file: 'idp/oidc/authorize/pushed.ts', in: 'find',
    replace: ', clientId: sha256(clientId) });', by: ' });',
    tests: [['idp/oidc/par', 'a pushed request is used once, by its client, within 90 seconds']],
  },
  {
    name: 'a pushed request gets several codes', file: 'idp/oidc/authorize/pushed.ts', in: 'using',
    replace: ', ...(!isForm && { usedAt: null })', by: '',
    tests: [['idp/oidc/par', 'a pushed request is used once, by its client, within 90 seconds']],
  },
  {
    name: 'another agent redeems the code', file: 'idp/oidc/delegations/actor.ts', in: 'proveDelegate',
    replace: 'if (agent.id !== delegation.agent)', by: 'if (false)',
    tests: [['idp/oidc/delegations', 'the code is worth nothing without the agent']],
  },
  {
    name: 'an ended delegation is valid', file: 'idp/oidc/delegations/service.ts', in: 'activate',
    replace: 'if (!delegation || delegation.revokedAt !== undefined)', by: 'if (!delegation)',
    tests: [['idp/oidc/delegations', 'the person sees what agents may do and ends it on the account page']],
  },
  {
    name: 'any issuer is trusted', file: 'idp/oidc/identity-assertions/verify.ts', in: 'findIssuer',
    replace: 'await trust.findIssuer(named)', by: '{ issuer: named, clients: [clientId], resources: [] }',
    tests: [['idp/oidc/identity-assertions', 'what is wrong with an assertion is refused, and it remains']],
  },
  {
    name: 'an expired assertion is accepted', file: 'idp/oidc/identity-assertions/verify.ts', in: 'problemOf',
    replace: 'exp <= now', by: 'false',
    tests: [['idp/oidc/identity-assertions', 'what is wrong with an assertion is refused, and it remains']],
  },
  {
    name: 'an assertion works twice', file: 'idp/oidc/identity-assertions/redeem.ts', in: 'redeemAssertion',
    replace: 'usedAssertions.inserting(', by: 'usedAssertions.ensuring(',
    tests: [['idp/oidc/identity-assertions', 'an assertion works once']],
  },
  {
    name: 'the end of the session does not count', file: 'idp/oidc/identity-assertions/issue.ts',
    in: 'readIdToken',
    replace: 'isOver ?', by: 'false ?',
    tests: [['idp/oidc/identity-assertion-issue', 'the end of the session, of the access, or of the person']],
  },
  {
    name: 'a code needs no verifier', file: 'idp/oidc/tokens/redeem.ts', in: 'redeemCode',
    replace: '?? verifierProblem(grant.challenge, verifier)', by: '',
    tests: [['idp/oidc/token', 'the code verifier must match the challenge, and neither works without']],
  },
  {
    name: 'a public client needs no PKCE', file: 'idp/oidc/authorize/rules.ts',
    replace: "if (isPublicClient(client)) return invalid('Public clients must send a code_challenge.');",
    by: 'if (isPublicClient(client)) return null;',
    tests: [['idp/oidc/authorize', 'all other errors go to the application with its state and our issuer']],
  },
  {
    name: 'a redirect URI may continue a registered one', file: 'idp/oidc/authorize/redirect-uri.ts',
    in: 'matchesRedirectUri',
    replace: 'redirectUris.includes(uri)', by: 'redirectUris.some((known) => uri.startsWith(known))',
    tests: [['idp/oidc/authorize', 'an unregistered redirect_uri is answered with an error page and never']],
  },
  {
    name: 'a replayed code leaves the tokens that were issued for it', file: 'idp/oidc/tokens/redeem.ts',
    in: 'redeemCode',
    replace: 'await revokeReplayed(grant.id, request.ip, deps);', by: '',
    tests: [['idp/oidc/token', 'a replayed code is refused and revokes the tokens issued for it, however late']],
  },
  {
    name: 'the audit does not say that a delegation ends with its agent', file: 'idp/oidc/granted-access.ts',
    replace: 'endDelegations({ agent: sub }, by, ({ agentEpoch = 0 }) => agentEpoch < epoch);', by: '',
    tests: [['idp/oidc/delegations', 'whatever ends a delegation ends its tokens']],
  },
  {
    name: 'a key that a platform has replaced stays', file: 'core/outbound/documents.ts',
    replace: 'freshUntil: now + lifetimeOf(outcome.response, now),', by: 'freshUntil: now + MAX_FRESH_MS,',
    tests: [['idp/oidc/agents-explore', 'on SQLite, agents get exactly the tokens that rules and people allow']],
  },
  {
    name: 'an approval outlives the stop of its agent', file: 'idp/oidc/tokens/issuance.ts', in: 'findOwner',
    replace: 'if (!agent || agent.epoch !== approval.agentEpoch) return null;', by: '',
    tests: [['idp/oidc/agents-explore', 'on SQLite, agents get exactly the tokens that rules and people allow']],
  },
  {
    name: 'WebFinger answers for every domain', file: 'idp/oidc/webfinger.ts', in: 'webfingerPlugin',
    replace: 'if (!knows(domain.toLowerCase()))', by: "if (domain === '')",
    tests: [['idp/oidc/webfinger', 'other resources are unknown, and what is no resource is refused']],
  },
  {
    name: 'WebFinger takes the path of a host', file: 'idp/routes.ts', in: 'registerWebfinger',
    replace: "|| fastify.hasRoute({ method: 'GET', url: WEBFINGER_PATH })", by: '',
    tests: [['idp/oidc/webfinger', 'the path stays with a host that has it']],
  },
];
