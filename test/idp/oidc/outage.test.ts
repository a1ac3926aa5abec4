import { sha256 } from '../../../src/core/kernel/secrets.js';
import { newRefreshToken } from '../../../src/idp/oidc/grant-tokens.js';
import { grantCollection } from '../../../src/idp/oidc/store.js';
import { refreshTokens } from '../../../src/idp/oidc/tokens/refresh.js';
import { fakeClock } from '../../kit/clock.js';
import { grantedIn } from '../../kit/granted.js';
import { SEED } from '../../kit/idp.js';
import { oidcOn } from '../../kit/oidc.js';
import { countedRandom } from '../../kit/random.js';
import { testRefreshesInOutages } from '../../kit/refresh-outage.js';

const [start, id] = [fakeClock().now(), `gr_${'0'.repeat(32)}`];
const first = newRefreshToken(id, countedRandom(), SEED);

testRefreshesInOutages({
  async setup(store) {
    await grantCollection(store).insert({
      ...{ id, clientId: 'cid_1', sub: 'u_1', redirectUri: 'x:', scope: 'offline_access' },
      ...{ codeHash: 'x', codeExpiresAt: start, consumedAt: start, authTime: start, createdAt: start },
      ...{ refreshHash: sha256(first), refreshExpiresAt: start + 3_600_000 },
    });
  },
  async present(store, { clock, unknownWrites }) {
    const principal = { id: 'u_1', kind: 'agent', handle: 'a' };
    const granted = grantedIn(store, { clock, random: countedRandom() });
    const directory = { findPrincipal: async () => principal as never };
    const deps = oidcOn(store, granted, { unknownWrites, directory });
    const client = { id: 'cid_1', principalKinds: ['agent'] } as never;
    const request = { fields: {}, resources: [], prove: undefined, ip: '192.0.2.1' };
    return refreshTokens(client, first, request, deps);
  },
  isEnded: async (store) => (await grantCollection(store).findOne({ id }))?.revokedAt !== undefined,
  reused: 'invalid_grant',
});
