import type { BackgroundTasks } from '../ops/background-tasks.js';
import type { PasswordPolicy } from '../passwords/common.js';
import type { Passwords } from '../passwords/hasher.js';
import type { Throttle } from '../throttle/throttle.js';
import type { Farewell } from './deletion.js';
import type { ForeignHashes } from './foreign-hashes.js';
import type { AccountMails } from './mails.js';
import type { SessionDependencies } from './sessions.js';

/** What the accounts are given by whoever puts the backend together. */
export interface AuthDependencies extends SessionDependencies {
  passwords: Passwords;
  passwordPolicy: PasswordPolicy;
  foreignHashes: Pick<ForeignHashes, 'decoys' | 'remove'>;
  throttle: Pick<Throttle, 'count' | 'countFor' | 'attempt' | 'trust' | 'trustOnly'>;
  mails: AccountMails;
  backgroundTasks: Pick<BackgroundTasks, 'run'>;
  farewell: Farewell;
  /** Whether the operator lets new accounts be made. */
  registrationAllowed(): Promise<boolean>;
  /** Whether nobody signs in before the address proved to be theirs. */
  verificationRequired: boolean;
  siteName(): Promise<string>;
}
