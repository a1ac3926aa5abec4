/** Defects of what hosts do with users, and of their hooks; part of `mutants.mjs`. */

const MERGES = 'of concurrent changes of metadata, none is lost';
const PASSWORD = 'a password that a host sets ends every session, and the user gets a notice';
const ADDRESS = 'an address that a host changes is unverified, gets a link, and the old one gets a notice';
const CLAIMS = 'claims never replace those of the session, and have a maximum size';
const FAILURES = 'a registration fails without a trace if its hook throws, hangs or answers nonsense';

/** @type {import('../mutants.mjs').Mutant[]} */
export const hostMutants = [
  {
    name: 'of two merges of metadata, one is lost',
    file: 'user-update.js',
    text: 'where.metadataRev = user.metadataRev ?? null;',
    replacement: '',
    tests: [['user-api', MERGES]],
  },
  {
    name: 'a merge that lost is not repeated',
    file: 'user-update.js',
    text: 'await revoked?.withdraw();\n            }',
    replacement: 'return user;\n            }',
    tests: [['user-api', MERGES]],
  },
  {
    name: 'a password of the host leaves sessions',
    file: 'user-update.js',
    text: '{ passwordVersion: 1, sessionEpoch: 1 }',
    replacement: '{ passwordVersion: 1 }',
    tests: [['user-api', PASSWORD]],
  },
  {
    name: 'a password of the host is not announced',
    file: 'user-update.js',
    text: 'await mails.passwordChanged(user, user.passwordVersion + 1, undefined);',
    replacement: '{}',
    tests: [['user-api', PASSWORD]],
  },
  {
    name: 'an address of the host counts as verified',
    file: 'user-update.js',
    text: '(isMoved ? false : user.emailVerified)',
    replacement: 'user.emailVerified || isMoved',
    tests: [['user-api', ADDRESS]],
  },
  {
    name: 'links to the former address stay valid',
    file: 'user-update.js',
    text: 'if (isMoved || passwordHash !== undefined)\n        for',
    replacement: 'if (passwordHash !== undefined)\n        for',
    tests: [['user-api', ADDRESS]],
  },
  {
    name: 'users read private metadata',
    file: 'store.js',
    text: '...publicMetadataOf(user),',
    replacement: '...publicMetadataOf({ publicMetadata: user.privateMetadata ?? user.publicMetadata }),',
    tests: [['user-api', 'only the host and the export of the user contain private metadata']],
  },
  {
    name: 'metadata grows without end',
    file: 'metadata.js',
    text: 'bytes <= MAX_METADATA_BYTES',
    replacement: 'true',
    tests: [['user-api', 'an update refuses what creation refuses, and changes nothing']],
  },
  {
    name: 'a hook may overwrite the user of a token',
    file: 'hooks.js',
    text: '.find((name) => RESERVED_CLAIMS.has(name))',
    replacement: '.find(() => false)',
    tests: [['hooks', CLAIMS]],
  },
  {
    name: 'claims have any size',
    file: 'hooks.js',
    text: 'Buffer.byteLength(text) > MAX_CLAIMS_BYTES',
    replacement: 'false',
    tests: [['hooks', CLAIMS]],
  },
  {
    name: 'a hook that fails lets everybody register',
    file: 'hooks.js',
    text: '() => beforeRegister(registration)).catch(failed)',
    replacement: '() => beforeRegister(registration)).catch(() => undefined)',
    tests: [['hooks', FAILURES]],
  },
  {
    name: 'a hook that fails prevents sign-ins',
    file: 'hooks.js',
    text: "logged('afterLogin', error))",
    replacement: '{ throw error; })',
    tests: [['hooks', 'a sign-in succeeds even if its hook throws or hangs']],
  },
  {
    name: 'the hook is asked for unknown addresses only',
    file: 'registration.js',
    text: 'if (beforeRegister)',
    replacement: 'if (beforeRegister && !(await users.findOne({ email })))',
    tests: [['hooks', 'a hook that rejects does not reveal which addresses have an account']],
  },
];
