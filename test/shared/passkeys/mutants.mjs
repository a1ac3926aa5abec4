/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'the origin is the one that the browser names', file: 'shared/passkeys/ceremony.ts',
    in: 'expectationsOf',
    replace: 'expectedOrigin: [...rp.origins],',
    by: "expectedOrigin: [...rp.origins, 'https://evil.test', rp.origins[0] + ':8443'],",
    tests: [['shared/passkeys/passkeys', 'a signature is valid for its origin, host, challenge, account']],
  },
  {
    name: 'passkeys of a wider domain are accepted', file: 'shared/passkeys/ceremony.ts', in: 'expectationsOf',
    replace: 'expectedRPID: rp.id,', by: "expectedRPID: [rp.id, 'example.test', 'evil.test'],",
    tests: [['shared/passkeys/passkeys', 'a signature is valid for its origin, host, challenge, account']],
  },
  {
    name: 'any challenge is accepted', file: 'shared/passkeys/ceremony.ts', in: 'expectationsOf',
    replace: 'expectedChallenge: challengeOf(form),', by: 'expectedChallenge: () => true,',
    tests: [['shared/passkeys/passkeys', 'a signature is valid for its origin, host, challenge, account']],
  },
  {
    name: 'the user need not be verified', file: 'shared/passkeys/ceremony.ts', in: 'expectationsOf',
    replace: 'requireUserVerification: true,', by: 'requireUserVerification: false,',
    tests: [['shared/passkeys/passkeys', 'a signature is valid for its origin, host, challenge, account']],
  },
  {
    name: 'a passkey signs in to any account', file: 'shared/passkeys/service.ts', in: 'verify',
    replace: 'assertion?.userHandle === userHandleOf(account)', by: 'true',
    tests: [['shared/passkeys/passkeys', 'a signature is valid for its origin, host, challenge, account']],
  },
  {
    name: 'a challenge is used again', file: 'shared/passkeys/service.ts', in: 'update',
    replace: 'commit([usingChallenge(form), updating])', by: 'commit([updating])',
    tests: [['shared/passkeys/passkeys', 'of 50 concurrent submissions of one signature one succeeds']],
  },
  {
    name: 'an equal counter is accepted', file: 'shared/passkeys/service.ts', in: 'isCounterStale',
    replace: 'seen <= stored', by: 'seen < stored',
    tests: [['shared/passkeys/passkeys', 'a counter that does not grow is refused and recorded, and stays']],
  },
  {
    name: 'removals do not exclude each other', file: 'shared/passkeys/service.ts', in: 'remove',
    replace: 'account.nextRevision,', by: '',
    tests: [['saas/login-providers/explore', 'simultaneous removals of a passkey and of providers leave a way']],
  },
  {
    name: 'a suspended user signs in', file: 'saas/auth/sign-in/passkey.ts', in: 'signIn',
    replace: 'await deps.rejectUnusable(user, source, mustBeVerified);', by: '',
    tests: [['saas/passkeys/passkeys', 'a suspended user is refused, and a deleted one leaves nothing behind']],
  },
];
