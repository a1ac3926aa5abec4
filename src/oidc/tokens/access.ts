import { SECOND, stillHolds } from '../../kernel/clock.js';
import { isSecretOf } from '../../kernel/secrets.js';
import { grantIdOf } from '../grant-tokens.js';
import type { Principal } from '../model.js';
import type { GrantDocument, IssuedToken } from '../store.js';
import type { TokenDependencies } from './dependencies.js';
import { ownerOf } from './owner.js';
import { TOKEN_LIFE } from './token-lifetimes.js';

/** A living access token: what it was issued from, and whose it is. */
export interface LivingAccess {
  grant: GrantDocument;
  issued: IssuedToken;
  principal: Principal;
  /** What it is good for. */
  scope: string;
}

type AccessDependencies = Pick<TokenDependencies, 'grants' | 'directory' | 'isRegistered' | 'clock'>;

export async function findAccess(
  accessToken: string,
  { grants, directory, isRegistered, clock }: AccessDependencies,
): Promise<LivingAccess | null> {
  const id = grantIdOf('at_', accessToken);
  const grant = id === undefined ? null : await grants.findOne({ id });
  if (!grant || grant.revokedAt !== undefined) return null;
  const issued = grant.accessTokens?.find(({ hash }) => isSecretOf(accessToken, hash));
  if (!issued || !stillHolds(issued.expiresAt, { now: clock.now(), life: TOKEN_LIFE * SECOND })) return null;
  if (!(await isRegistered(grant.clientId))) return null;
  const principal = await ownerOf(grant, directory);
  return principal && { grant, issued, principal, scope: issued.scope ?? grant.scope };
}
