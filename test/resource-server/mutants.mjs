import { runMutants } from '../mutants.mjs';

// Breaks the checks of a resource server, one defect at a time, in a copy of the build, and runs the tests that must
// notice. Exits with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

const TEST = 'resource-server';
const TOKENS = [
  TEST,
  'only tokens of this issuer for this resource are accepted, of the right type, within their time',
];
const SCOPES = [TEST, 'a token without the scopes of the route is told which it needs beside its own'];
const LATER = [TEST, 'a later hook demands more of the same token, whose proof is used up'];
const SIGN_IN = [TEST, 'a route may demand a strong and recent sign-in'];
const PROOF = [TEST, 'a token that is bound to a key needs a proof of it, once, for this request'];
const UNBOUND = [TEST, 'a bearer token is no DPoP token, and an API may accept those only'];
const REVOKED = [TEST, 'revoked tokens are refused as soon as the list says so'];
const SILENCE = [TEST, 'no token is accepted while the list is older than allowed, and any once it is back'];
const FORGED = [TEST, 'a list with another signature, type or issuer is none'];
const UNREACHABLE = [TEST, 'an issuer that cannot be reached is no reason to accept or to blame a token'];
const DPOP = '../http/dpop.js';
const LIST = '../http/revocation-list.js';

const mutants = [
  ...[
    ['tokens for any resource', 'audience: resource,', '', [TOKENS]],
    ['tokens of any type', "typ: 'at+jwt',", '', [TOKENS]],
    ['claims of any issuer', 'issuer,\n                audience', 'audience', [TOKENS]],
    ['a token without scopes', 'missing.length > 0', 'missing.length > 9', [SCOPES]],
    [
      'any scope of the route is enough',
      '!token.scopes.includes(scope)',
      'token.scopes.length === 0',
      [SCOPES],
    ],
    ['later demands are ignored', 'require: requireDemands', 'require: () => {}', [LATER]],
    ['any way to sign in', 'const isStrong = ', 'const isStrong = true || ', [SIGN_IN]],
    ['an old sign-in', 'age <= maxAge + SKEW_S', 'true', [SIGN_IN]],
    ['a bound token as a bearer token', "if (scheme !== 'DPoP')", 'if (false)', [PROOF]],
    ['a proof of another key', 'if (used !== bound)', 'if (false)', [PROOF]],
    ['an unbound token with a proof', "if (scheme === 'DPoP')\n", 'if (false)\n', [UNBOUND]],
    ['an unbound token where keys are required', 'if (requireDpop)', 'if (false)', [UNBOUND]],
    ['revoked tokens', 'revocations?.includes(claims)', 'false', [REVOKED]],
    ['an old list', '!revocations.isCurrent()', 'false', [SILENCE]],
  ].map(([name, text, replacement, tests]) => ({ name, file: 'service.js', text, replacement, tests })),
  ...[
    ['a list of any type', 'typ: REVOCATION_LIST_TYPE,', '', [FORGED]],
    ['a list of any issuer', 'issuer,\n            typ', 'typ', [FORGED]],
  ].map(([name, text, replacement, tests]) => ({ name, file: 'revocations.js', text, replacement, tests })),
  {
    name: 'metadata of another issuer',
    file: 'issuer.js',
    text: 'if (name !== issuer)',
    replacement: 'if (false)',
    tests: [UNREACHABLE],
  },
  ...[
    ['a proof for another method', 'if (htm !== method)', 'if (false)', [PROOF]],
    ['a proof for another address', 'targetOf(htu) !== targetOf(url)', 'false', [PROOF]],
    ['an old proof', 'age > PROOF_LIFETIME_MS', 'false', [PROOF]],
    ['a proof of the future', 'age < -AHEAD_MS', 'false', [PROOF]],
    ['a proof for another token', 'ath !== sha256(accessToken)', 'false', [PROOF]],
    ['a proof of any type', "typ?.toLowerCase() !== 'dpop+jwt'", 'false', [PROOF]],
    ['a used proof', '!(await replay.claim(', 'false && !(await replay.claim(', [PROOF]],
  ].map(([name, text, replacement, tests]) => ({ name, file: DPOP, text, replacement, tests })),
  ...[
    ['actors of revoked principals', '[{ sub, epoch }, ...actorsOf(act)]', '[{ sub, epoch }]', [REVOKED]],
    ['tokens after a principal is enabled again', 'generation < valid', 'true', [REVOKED]],
    ['tokens of ended delegations', "'delegation', ", '', [REVOKED]],
  ].map(([name, text, replacement, tests]) => ({ name, file: LIST, text, replacement, tests })),
];

runMutants('resource-server', mutants);
