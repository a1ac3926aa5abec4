import { parseBearer } from '../../core/http/authorization.js';
import { isOrganizationId, type KeyIdentity, peopleOnly } from '../../core/http/identity.js';
import type { User } from '../../core/http/schemas.js';
import { addressBlock } from '../../core/kernel/addresses.js';
import { MINUTE } from '../../core/kernel/clock.js';
import { type AppError, type ErrorOptions, httpErrors } from '../../core/kernel/errors.js';
import { isInNetworks } from '../../core/kernel/networks.js';
import { sha256 } from '../../core/kernel/secrets.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { KeyDocument, Keys } from './store.js';

/** Which requests API keys may make. */

/** With which every key begins, so that scanners find it in code. */
export const SECRET_PREFIX = 'sk_';

/** How exact the time of the last use is. */
const USE_INTERVAL_MS = 5 * MINUTE;

export interface KeyAccessOptions {
  /** Null if there is no such user. @throws ACCOUNT_SUSPENDED */
  findUser(id: string): Promise<User | null>;
  /** The error that agents get, too. */
  insufficientScope(options: ErrorOptions): AppError;
}

export type KeyAccess = ReturnType<typeof createKeyAccess>;

export function createKeyAccess(
  keys: Keys,
  { clock, throttle, audit, backgroundTasks }: ModuleContext,
  { findUser, insufficientScope }: KeyAccessOptions,
) {
  const recording = new Set<string>();
  /** After the response; a use that is not written is lost. */
  const recordUse = ({ id, lastUsedAt = 0 }: KeyDocument, ip: string): void => {
    const now = clock.now();
    if (now - lastUsedAt < USE_INTERVAL_MS || recording.has(id)) return;
    recording.add(id);
    backgroundTasks.run('time of the last use of an API key', () =>
      keys
        .changeOne({ id }, { set: { lastUsedAt: now, lastUsedFrom: addressBlock(ip) } })
        .finally(() => recording.delete(id)),
    );
  };

  return {
    /** Whether the header has an API key, valid or not. */
    isKey: (authorization: string | undefined): boolean =>
      parseBearer(authorization)?.startsWith(SECRET_PREFIX) ?? false,

    /**
     * @param scope of the route; absent: the route is for people only
     * @throws UNAUTHENTICATED, INSUFFICIENT_SCOPE, FORBIDDEN, ACCOUNT_SUSPENDED, RATE_LIMITED
     */
    async admit(
      { authorization, ip }: { authorization: string | undefined; ip: string },
      scope: string | undefined,
    ): Promise<KeyIdentity> {
      const hash = sha256(parseBearer(authorization) ?? '');
      // Of invented keys, each costs a read and is counted.
      const key = await throttle.attempt({ account: 'api-keys', ip, kind: 'key' }, () =>
        keys.findOne({ hash }),
      );
      if (!key) throw unauthenticated('This API key is invalid.');
      const { id, name, userId, owner, networks, expiresAt = Number.POSITIVE_INFINITY, scopes } = key;
      if (networks && !isInNetworks(ip, networks)) {
        await audit.recordFailure({ event: 'keys.refused', subject: userId, ip, detail: id });
        throw httpErrors.FORBIDDEN({ message: 'This API key is not accepted from this address.' });
      }
      if (expiresAt <= clock.now()) throw unauthenticated('This API key has expired.');
      const rejection = throttle.countRequestOf(id, ip);
      if (rejection) throw rejection;
      const user = await findUser(userId);
      if (!user) throw unauthenticated('This API key is invalid.');
      if (scope === undefined) throw peopleOnly();
      if (!scopes.includes(scope))
        throw insufficientScope({ message: `This API key does not have the scope ${scope}.` });
      recordUse(key, ip);
      const organization = isOrganizationId(owner) && { organizationId: owner };
      return { user, session: null, key: { id, name, ...organization }, scopes };
    },
  };
}

const unauthenticated = (message: string) =>
  httpErrors.UNAUTHENTICATED({
    message,
    headers: { 'www-authenticate': 'Bearer realm="api", error="invalid_token"' },
  });
