import type { FastifyReply, FastifyRequest } from 'fastify';
import type { SealedCookie } from '../../core/http/cookies.js';
import type { Identity } from '../../core/http/identity.js';
import type { Messages } from '../../core/http/messages.js';
import type { Pages } from '../../core/http/pages.js';
import type { User } from '../../core/http/schemas.js';
import type { Random } from '../../core/kernel/secrets.js';
import type { AgentAccounts } from '../agents/service.js';
import type { AuthService } from '../auth/service.js';
import type { SessionCookie } from '../auth/sessions/browser-sessions.js';
import type { UserFieldRules } from '../auth/users/fields.js';
import type { UserDirectory } from '../auth/users/users.js';
import type { BillingModule } from '../billing/module.js';
import type { KeyService } from '../keys/service.js';
import type { Federation } from '../login-providers/service.js';
import type { OperatorSessions } from '../operators/guard.js';
import type { OrganizationsModule } from '../organizations/module.js';
import type { PasskeyFlows } from '../passkeys/service.js';
import type { Destination, PageSessions } from './session.js';

/** What the page of operators needs to know of the admin area. */
export interface OperatorPages extends Pick<OperatorSessions, 'examine'> {
  /** A page of the admin area; its start for any other address. */
  hrefOf(page: string): string;
}

/** Sign-in with passkeys, and the script of the pages that use them. */
export interface Passkeys extends PasskeyFlows {
  script: string;
}

export interface UserPagesModuleOptions {
  accounts: AuthService;
  /** Absent if none is configured. */
  providers: Federation | undefined;
  /** Absent if no identity provider of agents is configured. */
  agents: AgentAccounts | undefined;
  /** Absent if they are not enabled. */
  passkeys: Passkeys | undefined;
  /** Absent if API keys are not enabled. */
  keys: KeyService | undefined;
  /** Absent if nothing can be bought. */
  billing: BillingModule | undefined;
  /** Absent if organizations are not enabled. */
  organizations: OrganizationsModule | undefined;
  operators: OperatorPages;
  /** Ends a sign-in on these pages that is not permitted now. @throws MAINTENANCE */
  admitSignIn(user: User): Promise<void>;
  /** The fields of users that the host declares; absent without the option. */
  userFields: UserFieldRules | undefined;
  changeProfile: UserDirectory['changeProfile'];
  /** The cookie of the API with the refresh token. */
  sessionCookie: SessionCookie;
  /** The origins of pages at which a user may continue, beside that of the public address. */
  origins: readonly string[];
  /** The secrets that encrypt what the browser keeps, the current one first. */
  secrets: readonly string[];
  /** The user and session of a request that the guard has admitted. */
  identityOf(request: FastifyRequest): Identity;
  pages: Pages;
  messages: Messages;
  /** The path of the account page, which includes what a proxy adds. */
  path(): string;
  publicUrl(): string;
  /** The path of the API, which includes what a proxy adds. */
  apiPath(): string;
  registrationAllowed(): Promise<boolean>;
  /** Streams what is stored about a user, a limited number of times. */
  sendExport(request: FastifyRequest, reply: FastifyReply, userId: string): Promise<unknown>;
}

/** What the pages have in common. */
export interface PageContext extends UserPagesModuleOptions {
  now(): number;
  random: Random;
  sessions: PageSessions;
  destinationOf(returnTo: string | undefined): Destination;
  /** The cookie in which the browser keeps the state of a sign-in. */
  cookieOf<T extends object>(name: string): SealedCookie<T>;
}

/** The same for the pages of parts that are configured. */
export type PagesWith<
  Part extends 'providers' | 'agents' | 'passkeys' | 'keys' | 'billing' | 'organizations',
> = PageContext & { [Name in Part]: NonNullable<PageContext[Name]> };
