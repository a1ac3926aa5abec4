import type { Passwords } from '../kernel/passwords.js';
import type { PasswordPolicy } from '../kernel/passwords-common.js';
import type { Afterwards } from '../ops/afterwards.js';
import type { Throttle } from '../ops/throttle.js';
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
  afterwards: Pick<Afterwards, 'run'>;
  farewell: Farewell;
  /** Whether the operator lets new accounts be made. */
  registrationAllowed(): Promise<boolean>;
  /** Whether nobody signs in before the address proved to be theirs. */
  verificationRequired: boolean;
  siteName(): Promise<string>;
}
