/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'MongoDB: writes are acknowledged before a majority has journalled them',
    file: 'core/storage/mongodb/store.ts',
    replace: "w: 'majority', j: true,", by: 'w: 1, j: false,',
    campaign: ['mongodb 2 processes', 'primary alone, then killed'],
  },
  {
    name: 'saas-backend: a refresh rotates the session whichever token it presents',
    file: 'saas/auth/sessions/refresh.ts', in: 'refresh',
    replace: 'currentId: presented, revokedAt: null', by: 'revokedAt: null',
    campaign: ['sqlite 2 processes', 'kill -9 of one process'],
  },
  {
    name: 'idp: a code is redeemed twice', file: 'idp/oidc/tokens/redeem.ts', in: 'consume',
    replace: 'consumedAt: null,', by: '',
    campaign: ['sqlite 2 processes', 'kill -9 of one process'],
  },
];
