import type { BackgroundTasks } from '../../core/ops/background-tasks.js';
import type { Emit } from '../../core/ops/events.js';
import type { PasswordPolicy } from '../../core/passwords/common.js';
import type { Passwords } from '../../core/passwords/hasher.js';
import type { AccountData, SignInMethods } from '../../core/server/contributions.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import type { AuthEvents } from './events.js';
import type { ForeignHashes } from './import/foreign-hashes.js';
import type { AccountMails } from './mails.js';
import type { SessionDependencies } from './sessions/sessions.js';
import type { Challenges, SecondFactors } from './sign-in/second-factor.js';
import type { ProfileMark } from './store.js';

/** What the services of this domain depend on; each picks what it needs. */
export interface AuthDependencies extends SessionDependencies {
  passwords: Passwords;
  passwordPolicy: PasswordPolicy;
  /** For events that were announced with the change, or that a repeated request may emit again. */
  emit: Emit<AuthEvents>;
  foreignHashes: Pick<ForeignHashes, 'decoys' | 'remove'>;
  throttle: Pick<
    Throttle,
    'count' | 'countKey' | 'tryCountKey' | 'attempt' | 'trust' | 'trustOnly' | 'isTrusted'
  >;
  mails: AccountMails;
  backgroundTasks: Pick<BackgroundTasks, 'run'>;
  /** What all domains store about an account. */
  accountData: Pick<AccountData, 'close' | 'delete'>;
  /** What gives access to an account beside its password. */
  signInMethods: Pick<SignInMethods, 'forget' | 'remove'>;
  /** Absent if no encryption key is configured. */
  secondFactors?: SecondFactors | undefined;
  challenges?: Challenges | undefined;
  /** Whether the operator allows new registrations. */
  registrationAllowed(): Promise<boolean>;
  /** Whether the address must be verified before the first login. */
  verificationRequired: boolean;
  siteName(): Promise<string>;
  profileMark: ProfileMark;
  /** Called after an address has changed, so that other systems receive it soon. */
  profileChanged(): void;
}
