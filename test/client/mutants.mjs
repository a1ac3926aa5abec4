/** @type {import('../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a refresh for each request', file: 'client/session.ts', in: 'refresh',
    replace: 'refreshing ??= withTokens', by: 'refreshing = withTokens',
    tests: [['client/client', 'requests that are refused together share one refresh, also one that fails']],
  },
  {
    name: 'a request of another user is repeated', file: 'client/client.ts', in: 'authorized',
    replace: '|| sessionOf(next) !== sessionOf(tokens)', by: '',
    tests: [['client/client', 'a request of one user is not repeated for another']],
  },
  {
    name: 'a request without a body does not say that it is JSON', file: 'client/client.ts', in: 'createClient',
    replace: "(here === undefined && method !== 'GET')", by: 'false',
    tests: [['client/client', 'outside of browsers, each request that changes something says that it is JSON']],
  },
  {
    name: 'the cookie of a refresh is lost with the page', file: 'client/client.ts', in: 'createClient',
    replace: "path === '/auth/refresh' && { keepalive", by: "path === '' && { keepalive",
    tests: [['client/client', 'the exchange of a refresh token in a cookie outlives the page']],
  },
  {
    name: 'the token goes to any origin', file: 'client/client.ts', in: 'createClient',
    replace: '!origins.includes(url.origin)', by: 'false',
    tests: [['client/client', 'the token goes to other origins only if they are named']],
  },
  {
    name: 'a visitor causes a request', file: 'client/client.ts', in: 'findSession',
    replace: 'if (!(await session.current())) return null;', by: '',
    tests: [['client/client', 'a visitor causes no request, and the session of a user is read once for all, in memory']],
  },
  {
    name: 'a token is handed out until it expires', file: 'client/session.ts', in: 'current',
    replace: 'tokens.renewAt > Date.now()', by: 'true',
    tests: [['client/client', 'an access token is replaced before it expires']],
  },
  {
    name: 'a sign-in is told to nobody', file: 'client/session.ts', in: 'begin',
    replace: "onChange({ reason: 'login' });", by: '',
    tests: [['client/client', 'listeners learn of each sign-in and each end, until they end it']],
  },
  {
    name: 'a page does not notice the end of the session that a server has rendered', file: 'client/session.ts', in: 'assume',
    replace: 'known = id;', by: '',
    tests: [['client/client', 'a page that a server has rendered for a session notices its end']],
  },
  {
    name: 'a page remembers that there was no session', file: 'client/session.ts', in: 'assume',
    replace: 'void store.save(undefined);', by: '{}',
    tests: [['client/client', 'a page that a server has rendered for a session notices its end']],
  },
];
