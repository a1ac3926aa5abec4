import type { Clock } from '../../core/kernel/clock.js';
import type { Random } from '../../core/kernel/secrets.js';
import type { Audit } from '../../core/ops/audit.js';
import type { BackgroundTasks } from '../../core/ops/background-tasks.js';
import type { CommitParts, Effect } from '../../core/ops/commit.js';
import type { EventOf } from '../../core/ops/events.js';
import type { UnknownWritesRegistry } from '../../core/ops/unknown-writes.js';
import type { PasswordPolicy } from '../../core/passwords/common.js';
import type { Passwords } from '../../core/passwords/hasher.js';
import type { AccountData, SignInMethods } from '../../core/server/contributions.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import type { FactorService } from '../../shared/factors/service.js';
import type { AuthEvents } from './events.js';
import type { Hooks } from './hooks.js';
import type { ForeignHashes } from './import/foreign-hashes.js';
import type { AccountMails } from './mails.js';
import type { SessionTokens } from './sessions/tokens.js';
import type { PresentUser, ProfileMark, Sessions, Users } from './store.js';
import type { UserFieldRules } from './users/fields.js';

/** What sessions depend on. */
export interface SessionDependencies {
  users: Users;
  sessions: Sessions;
  tokens: SessionTokens;
  presentUser: PresentUser;
  /** Whether a user is active in the directory of the process. Absent without one. */
  admits?: ((userId: string) => Promise<boolean>) | undefined;
  /** Absent without the option. */
  hooks?: Hooks | undefined;
  audit: Audit;
  commit: CommitParts;
  event: EventOf<AuthEvents>;
  unknownWrites: UnknownWritesRegistry;
  /** The roles whose users may act as others. Absent without the option. */
  impersonationRoles?: readonly string[] | undefined;
  clock: Clock;
  random: Random;
  /** How long the previous refresh token still returns the same successor, for parallel requests and lost responses; seconds. */
  refreshReuseWindow: number;
}

export interface SecondFactors extends Omit<FactorService, 'requiredFrom'> {
  /** By when the account must have one, in Unix milliseconds; null if it has one, or need not. */
  requiredFrom(userId: string): Promise<number | null>;
}

/** What the services of this domain depend on. */
export interface AuthDependencies extends SessionDependencies {
  /** Absent without the option. */
  userFields?: UserFieldRules | undefined;
  passwords: Passwords;
  passwordPolicy: PasswordPolicy;
  foreignHashes: Pick<ForeignHashes, 'decoys' | 'removing'>;
  throttle: Pick<
    Throttle,
    'count' | 'countKey' | 'tryCountKey' | 'attempt' | 'trust' | 'trustOnly' | 'isTrusted'
  >;
  mails: AccountMails;
  backgroundTasks: Pick<BackgroundTasks, 'run'>;
  /** What all domains store about an account. */
  accountData: AccountData;
  /** What gives access to an account beside its password. */
  signInMethods: SignInMethods;
  /** Absent if no encryption key is configured. */
  secondFactors?: SecondFactors | undefined;
  /** The secrets that encrypt what a client keeps, the current one first. */
  secrets: readonly string[];
  /** Whether new registrations are allowed, in this way. */
  registrationAllowed(method?: string): Promise<boolean>;
  /** Whether the address must be verified before the first login. */
  verificationRequired: boolean;
  siteName(): Promise<string>;
  profileMark: ProfileMark;
  /** In the commit of a new address, so that other systems receive it soon. */
  profileChanged: Effect;
}
