import { runMutants } from '../mutants.mjs';

// Breaks the provider, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits
// with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

const HISTORY = [
  'purge',
  'removing expired documents changes no answer, keeps live ones and leaves no expired one for long',
];
const RACES = ['processes', 'four processes share one SQLite file'];
const VERIFIED = ['email-verified', 'an address is verified'];

const mutants = [
  {
    name: 'what is over is removed at once',
    file: 'purge.js',
    text: 'grantExpiry(grant) <= now - PURGE_MARGIN_MS',
    replacement: 'grantExpiry(grant) <= now',
    tests: [HISTORY],
  },
  {
    name: 'a family that was refreshed meanwhile is removed',
    file: 'purge.js',
    text: 'deleteMany({ id: { in: ids }, revision })',
    replacement: 'deleteMany({ id: { in: ids } })',
    tests: [['purge', 'a family that is refreshed']],
  },
  {
    name: 'what was prolonged meanwhile is removed',
    file: '../ops/purge.js',
    text: 'deleteMany({ ...where, id:',
    replacement: 'deleteMany({ id:',
    tests: [['purge', 'a session extended during its removal stays']],
  },
  {
    name: 'a purge goes on when it is to stop',
    file: '../ops/purge.js',
    text: 'seen < MAX_PER_RUN && !signal.aborted;',
    replacement: 'seen < MAX_PER_RUN;',
    tests: [['purge', 'the program serves during a purge, and SIGTERM ends both']],
  },
  {
    name: 'a grant is over with its code',
    file: 'grant-tokens.js',
    text: ', ...accessTokens.map(({ expiresAt }) => expiresAt)',
    replacement: '',
    tests: [HISTORY],
  },
  {
    name: 'a grant is over with its access tokens',
    file: 'grant-tokens.js',
    text: 'Math.max(codeExpiresAt, refreshExpiresAt, ',
    replacement: 'Math.max(codeExpiresAt, ',
    tests: [HISTORY],
  },
  {
    name: 'families are looked at once only',
    file: 'purge.js',
    text: 'now - startedAt >= DAY',
    replacement: 'startedAt < 0',
    tests: [['purge', 'token families alive at the first purge are checked again later']],
  },
  {
    name: 'who is locked out counts as gone',
    file: '../provisioning/directory.js',
    text: "principal.state === 'deleted'",
    replacement: "principal.state !== 'active'",
    tests: [['purge', 'the purge removes consents of deleted principals and keeps those of disabled ones']],
  },
  {
    name: 'jobs outlive their server',
    file: '../server/module-context.js',
    text: `await backgroundTasks.settled();
        await jobs.stop();`,
    replacement: 'await backgroundTasks.settled();',
    tests: [['../server/module-context', 'a server that closes stops its jobs and waits for them']],
  },
  {
    name: 'a code is redeemed whoever was first',
    file: 'tokens/redeem.js',
    text: 'consumedAt: null,',
    replacement: '',
    tests: [RACES],
  },
  {
    name: 'whoever knows the name of a grant has its code',
    file: 'tokens/redeem.js',
    text: '!isSecretOf(code, grant.codeHash) || ',
    replacement: '',
    tests: [
      [
        'token',
        'a code is valid for its client and redirect_uri for 60 seconds, and survives a failed attempt',
      ],
    ],
  },
  {
    name: 'a refresh token is exchanged whoever was first',
    file: 'tokens/refresh.js',
    text: 'id, revision: grant.revision ?? null, revokedAt: null',
    replacement: 'id, revokedAt: null',
    tests: [RACES],
  },
  {
    name: 'a refresh token that was never issued revokes its family',
    file: 'tokens/refresh.js',
    text: 'isPrevious || isIssuedRefreshToken(id, token, deps.seeds)',
    replacement: 'true',
    tests: [['refresh', 'a token that was never issued']],
  },
  {
    name: 'only the newest two refresh tokens of a family count as stolen',
    file: 'tokens/refresh.js',
    text: 'isPrevious || isIssuedRefreshToken(id, token, deps.seeds)',
    replacement: 'isPrevious',
    tests: [['refresh', 'a token older than the previous one counts as reuse at once']],
  },
  {
    name: 'everybody of a trusted domain is believed',
    file: 'claims.js',
    text: '(invitedAt ?? vouchedAt) !== undefined && ',
    replacement: '',
    tests: [['email-verified', 'an address of a person who was not invited is not verified']],
  },
  {
    name: 'domains below a trusted one are trusted, too',
    file: 'claims.js',
    text: "spellings.has(address.slice(address.lastIndexOf('@') + 1))",
    replacement: '[...spellings].some((domain) => address.endsWith(domain))',
    tests: [VERIFIED],
  },
  {
    name: 'only the key that signs is published',
    file: 'keys.js',
    text: 'jwks: { keys: pairs.map((pair) => pair.jwk) }',
    replacement: 'jwks: { keys: [jwk] }',
    tests: [['rotation', 'key rotations under load']],
  },
  {
    name: 'hints verify under the key that signs alone',
    file: 'keys.js',
    text: 'new Map(pairs.map(',
    replacement: 'new Map(pairs.slice(0, 1).map(',
    tests: [['logout', 'a hint is accepted for as long as its key is published']],
  },
  {
    name: 'a session is named where there is none',
    file: 'tokens/issuance.js',
    text: '...(grant.sid !== undefined && { sid: grant.sid })',
    replacement: "sid: grant.sid ?? 'sid_'.padEnd(36, '0')",
    tests: [['sessions', 'Basic starts no session and issues no sid']],
  },
  {
    name: 'the tag of a form is not compared',
    file: 'authorize/interaction-token.js',
    text: 'presented.length === expected.length && timingSafeEqual(presented, expected)',
    replacement: 'presented.length === expected.length',
    tests: [['sign-in', 'a form is accepted only from the browser that it was shown in']],
  },
  {
    name: 'a form is not bound to its cookie',
    file: 'authorize/interaction-token.js',
    text: 'sha256(cookie)',
    replacement: "sha256('')",
    tests: [['sign-in', 'a form is accepted only from the browser that it was shown in']],
  },
  {
    name: 'a form never expires',
    file: 'authorize/interaction-token.js',
    text: 'return isUnexpired(expiresAt, { now: clock.now(), life: LIFETIME_MS }) ? interaction : null;',
    replacement: 'return interaction;',
    tests: [['sign-in', 'a form is accepted only from the browser that it was shown in']],
  },
  {
    name: 'forms of other keys are refused during a rotation',
    file: 'authorize/interaction-token.js',
    text: 'seeds.map(deriveKey)',
    replacement: 'seeds.slice(0, 1).map(deriveKey)',
    tests: [
      ['interactions', 'a form shown by one process is accepted by another, even during a key rotation'],
    ],
  },
  {
    name: 'a client that asked for ES256 gets EdDSA',
    file: 'tokens/issuance.js',
    text: ', idTokenAlg);',
    replacement: ');',
    tests: [['es256', 'a client that asks for ES256 gets it']],
  },
  {
    name: 'a name may resolve to a private address',
    file: 'backchannel/request.js',
    text: '!addresses.every(({ address }) => isAllowed(address))',
    replacement: 'false',
    tests: [['backchannel', 'only public addresses are called']],
  },
  {
    name: 'one of several addresses is checked',
    file: 'backchannel/request.js',
    text: 'addresses.every(',
    replacement: 'addresses.some(',
    tests: [['backchannel', 'only public addresses are called']],
  },
  {
    name: 'a notice is sent although the session continues',
    file: 'backchannel/service.js',
    text: 'if (!(await hasEnded(due)))',
    replacement: 'if (false)',
    tests: [['backchannel', 'SQLite: an end that was announced and did not happen']],
  },
  {
    name: 'an end is not announced a second time',
    file: 'backchannel/store.js',
    text: 'attempts: 0 }, {',
    replacement: 'dueAt: null }, {',
    tests: [['backchannel', 'SQLite: an end is told although an earlier announcement is being withdrawn']],
  },
  {
    name: 'the job withdraws an announcement that it has not seen',
    file: 'backchannel/service.js',
    text: '{ id, attempts, dueAt }, isChanging',
    replacement: '{ id, attempts }, isChanging',
    tests: [['backchannel', 'SQLite: an end is told although an earlier announcement is being withdrawn']],
  },
  {
    name: 'a notice that failed is given up',
    file: 'backchannel/service.js',
    text: 'leased.attempts < MAX_ATTEMPTS',
    replacement: 'false',
    tests: [['backchannel', 'SQLite: an application that fails is told again']],
  },
  {
    name: 'an application that hangs is called for each notice',
    file: 'backchannel/service.js',
    text: 'if (await deliver(notice))',
    replacement: 'if ((await deliver(notice)) || true)',
    tests: [['backchannel', 'SQLite: an application that cannot be reached delays no other']],
  },
  {
    name: 'an application with refresh tokens is forgotten with the session',
    file: 'backchannel/service.js',
    text: "includes('offline_access')",
    replacement: "includes('nothing')",
    tests: [['backchannel', 'SQLite: an application with refresh tokens is told long after']],
  },
  {
    name: 'two processes send one notice',
    file: 'backchannel/service.js',
    text: 'updateOne({ id, attempts, dueAt }, { set:',
    replacement: 'updateOne({ id }, { set:',
    tests: [['backchannel', 'SQLite: concurrent ends and processes tell each application once']],
  },
  {
    name: 'an application that comes late is forgotten',
    file: 'backchannel/service.js',
    text: 'if (isNew && ',
    replacement: 'if (false && ',
    tests: [['backchannel', 'SQLite: an application that is remembered while its session ends']],
  },
];

runMutants('oidc', mutants);
