/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a mailed link is used without a condition', file: 'idp/provisioning/links.ts', in: 'useLink',
    replace: 'epoch: epoch ?? null,\n          ...current,', by: '',
    tests: [['idp/provisioning/mailed-link-races', 'a mailed link and a change of the password: in every order']],
  },
  {
    name: 'a new password is not reported', file: 'idp/provisioning/principals.ts', in: 'changePassword',
    replace: 'mails?.passwordChanged(proven, source),', by: '',
    tests: [['idp/provisioning/mailed-link-races', 'a mailed link and a change of the password: in every order']],
  },
  {
    name: 'an unknown user name gets another answer', file: 'idp/provisioning/recovery.ts',
    in: 'forgotPassword',
    replace: "backgroundTasks.run('password reset',",
    by: "if (!(await principals.findOne({ handle: account }))) throw new Error('unknown'); backgroundTasks.run('password reset',",
    tests: [['idp/provisioning/recovery', 'every user name gets the same answer, and only an active person']],
  },
  {
    name: 'a declared claim replaces one of the provider', file: 'idp/oidc/claims.ts', in: 'createClaims',
    replace: 'sub: id,', by: "sub: id, ...(client?.claims && customClaims(client.claims, metadata)),",
    tests: [['idp/provisioning/metadata', 'no claim of the provider can be declared']],
  },
  {
    name: 'a change of metadata replaces another one', file: 'idp/provisioning/directory.ts', in: 'changeMetadata',
    replace: '{ id: sub, state, metadataRevision }', by: '{ id: sub, state }',
    tests: [['idp/provisioning/metadata', 'of simultaneous changes none is lost']],
  },
  {
    name: 'the mailbox alone verifies an address', file: 'idp/provisioning/verification.ts', in: 'prove',
    replace: 'if (session?.id === id)', by: 'if (true) return { id, handle }; if (session?.id === id)',
    tests: [['idp/provisioning/verification', 'a person confirms the address by the mailed link']],
  },
  {
    name: 'an address is not reserved against handles', file: 'idp/provisioning/addresses.ts', in: 'createAddresses',
    replace: 'reservedBy(names).map((id) => addresses.inserting({ id, sub })),', by: '[],',
    tests: [['idp/provisioning/addresses', 'of concurrent sign-ups with one name']],
  },
  {
    name: 'an unverified address of an operator gets links', file: 'idp/provisioning/recovery.ts', in: 'forgotPassword',
    replace: 'if (found.emailSetAt !== undefined && found.emailVerifiedAt === undefined) return;', by: '',
    tests: [['idp/provisioning/addresses', 'an address of an operator is unverified']],
  },
  {
    name: 'a link of the previous address outlives it', file: 'idp/provisioning/directory.ts',
    replace: "'vouchedAt', 'mailedLinkHash',", by: "'vouchedAt',",
    tests: [['idp/provisioning/mailed-link-races', 'no link of the previous address proves another one']],
  },
  {
    name: 'an accepted invitation is withdrawn', file: 'idp/provisioning/new-links.ts', in: 'end',
    replace: "state: 'invited', linkExpiresAt: expiry ?? null,", by: '',
    tests: [['idp/provisioning/mailed-link-races', 'an invitation is accepted or withdrawn']],
  },
];
