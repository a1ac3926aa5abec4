import type { Clock } from '../../kernel/clock.js';
import type { Random } from '../../kernel/secrets.js';
import type { Audit } from '../../ops/audit.js';
import type { ClaimsOf } from '../claims.js';
import type { Keys } from '../keys.js';
import type { Directory } from '../model.js';
import type { Grants } from '../store.js';
import type { IsRegistered } from './registrations.js';

export interface TokenDependencies {
  grants: Grants;
  directory: Pick<Directory, 'findPrincipal' | 'findClient'>;
  isRegistered: IsRegistered;
  keys: Keys;
  claimsOf: ClaimsOf;
  issuer(): string;
  /** Key the successors of refresh tokens: the first those made here, all of them those that are recognized. */
  seeds: readonly [string, ...string[]];
  audit: Audit;
  clock: Clock;
  random: Random;
}
