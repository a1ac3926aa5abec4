import type { AuthDependencies } from '../auth/dependencies.js';
import type { AuthEvents } from '../auth/events.js';
import type { ForeignHashes } from '../auth/foreign-hashes.js';
import type { TokenKind } from '../auth/jwt.js';
import { createAccountMails } from '../auth/mails.js';
import { createAccountRecords } from '../auth/records.js';
import { type AuthService, createAuth } from '../auth/service.js';
import type { Sessions, Users, ViewOf } from '../auth/store.js';
import { createSessionTokens } from '../auth/tokens.js';
import type { Forget } from '../billing/forget.js';
import type { Billing } from '../billing/service.js';
import { type PublicUrl, withLeadingSlash } from '../config/public-url.js';
import type { EmailService } from '../email/service.js';
import { toTimestamp } from '../http/schemas.js';
import type { ListedAudit } from '../ops/audit.js';
import type { BackgroundTasks } from '../ops/background-tasks.js';
import type { Emit } from '../ops/events.js';
import type { Jobs } from '../ops/jobs.js';
import { purgeExpired } from '../ops/purge.js';
import type { PasswordPolicy } from '../passwords/common.js';
import type { Passwords } from '../passwords/hasher.js';
import type { SettingsService } from '../settings/service.js';
import { mapPages } from '../storage/pages.js';
import type { Throttle } from '../throttle/throttle.js';
import type { ResolvedSaas } from './options.js';

/** The accounts put together: what they are given of the other domains, and what these are asked when somebody leaves. */

export interface AccountParts {
  users: Users;
  sessions: Sessions;
  passwords: Passwords;
  passwordPolicy: PasswordPolicy;
  foreignHashes: ForeignHashes;
  siteName(): Promise<string>;
  audit: ListedAudit;
  throttle: Throttle;
  settings: SettingsService;
  billing: Billing;
  forgetPurchases: Forget;
  email: EmailService;
  jobs: Jobs;
  accessTokens: TokenKind;
  refreshTokens: TokenKind;
  backgroundTasks: BackgroundTasks;
  emit: Emit<AuthEvents>;
  viewOf: ViewOf;
  publicUrl: PublicUrl;
  /** The path below which our own pages are, as people reach them. */
  mountedAt(): string;
}

export interface Accounts {
  auth: AuthService;
  /** Everything that is stored about a user. Long lists are async iterables of their pages. */
  exportOf(userId: string): Promise<Record<string, unknown>>;
}

const HOURLY = 3600;

export async function createAccounts(
  { config: { values }, runtime: { clock, random } }: ResolvedSaas,
  parts: AccountParts,
): Promise<Accounts> {
  const { users, sessions, audit, settings, billing, email, jobs, publicUrl, mountedAt } = parts;
  const { forgetPurchases } = parts;
  const pageAt = (configured: string | undefined, own: string) => () =>
    publicUrl.get() + (configured === undefined ? `${mountedAt()}${own}` : withLeadingSlash(configured));

  const dependencies: AuthDependencies = {
    ...parts,
    tokens: createSessionTokens({
      access: parts.accessTokens,
      refresh: parts.refreshTokens,
      accessTtl: values.accessTokenTtl,
      issuer: publicUrl.get,
      clock,
      random,
    }),
    mails: createAccountMails({
      outbox: email,
      pages: {
        reset: pageAt(values.resetUrlRelative, '/auth/reset-password'),
        verify: pageAt(values.verifyUrlRelative, '/auth/verify-email'),
        unlock: pageAt(undefined, '/auth/unlock'),
      },
      clock,
    }),
    farewell: {
      cancelSubscriptions: billing.cancelSubscriptions,
      async forget(id) {
        await Promise.all([forgetPurchases(id), email.forget(id)]);
      },
      sweep: forgetPurchases,
    },
    clock,
    random,
    registrationAllowed: async () => (await settings.current()).allowRegistration,
    verificationRequired: values.requireEmailVerification,
    refreshTtl: values.refreshTokenTtl,
    sessionMaxAge: values.sessionMaxAge,
  };
  const auth = createAuth(dependencies);
  const { recordsOf } = createAccountRecords({ users, sessions, viewOf: parts.viewOf });

  jobs.add('account-deletion', auth.deletionJob);
  jobs.add('foreign-hashes', parts.foreignHashes.recount);
  jobs.add('session-purge', {
    everySeconds: HOURLY,
    run: async ({ signal }) => void (await purgeExpired(sessions, { now: clock.now(), signal })),
  });
  return {
    auth,
    async exportOf(id) {
      const [records, purchases] = await Promise.all([recordsOf(id), billing.recordsOf(id)]);
      return {
        exportedAt: toTimestamp(clock.now()),
        ...records,
        billing: purchases,
        audit: mapPages(audit.listOf(id), ({ at, event, ip, detail }) => ({
          at: toTimestamp(at),
          event,
          ip,
          ...(detail && { detail }),
        })),
        mails: email.listOf(id),
      };
    },
  };
}
