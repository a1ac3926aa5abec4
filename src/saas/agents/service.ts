import { withQuery } from '../../core/config/public-url.js';
import { newSignInChecks, returnAddressOf, type SignInChecks } from '../../core/http/provider-sign-in.js';
import type { RequestSource } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import type { Clock } from '../../core/kernel/clock.js';
import type { Sealed } from '../../core/kernel/sealed.js';
import { newId, type Random, sha256 } from '../../core/kernel/secrets.js';
import type { Audit } from '../../core/ops/audit.js';
import type { Announce } from '../../core/ops/events.js';
import type { SingleUse } from '../../core/ops/single-use.js';
import { nullIfTaken } from '../../core/storage/collection.js';
import { agentErrors } from './errors.js';
import type { AgentAccountView, AgentEvents } from './schemas.js';
import {
  type AgentLink,
  type AgentLinkChange,
  type AgentLinks,
  changeOf,
  linkId,
  linkOwner,
} from './store.js';

/** The sign-in at the identity provider, with which a person proves which account there is theirs. */
export interface IdentityProof {
  /** Null if the provider does not respond. */
  authorizationUrl(checks: SignInChecks, redirectUri: string, loginHint: undefined): Promise<URL | null>;
  /** Null if the response is an error or invalid, or if the provider does not respond. */
  identify(
    response: URL,
    checks: SignInChecks,
  ): Promise<{ issuer: string; subject: string; kind?: string | undefined } | null>;
}

/** A connection that has begun, in the cookie of the browser. */
export interface PendingConnection extends SignInChecks {
  returnTo: string;
  codeChallenge: string;
}

/** Who has signed in at the identity provider, for the application that began it. */
export interface ConnectionTicket {
  /** Of which one connection can be made. */
  id: string;
  subject: string;
  codeChallenge: string;
}

/** The account of the identity provider that belongs to a user, whose agents act for the user here. */
export type AgentAccounts = ReturnType<typeof createAgentAccounts>;

export interface AgentAccountDependencies {
  issuer: string;
  resource: string;
  links: AgentLinks;
  provider: IdentityProof;
  begun: Sealed<PendingConnection>;
  tickets: Sealed<ConnectionTicket>;
  ticketLifetimeMs: number;
  singleUse: Pick<SingleUse, 'run'>;
  callbackUrl(): string;
  publicUrl(): string;
  /** The origins of applications, beside that of the public address. */
  origins: readonly string[];
  /** Enqueues the mail about a change. */
  announce(change: AgentLinkChange, userId: string, source: RequestSource): Promise<void>;
  audit: Pick<Audit, 'record'>;
  announceEvent: Announce<AgentEvents>;
  clock: Clock;
  random: Random;
}

/** Connections of one user: one for each issuer that was ever configured. */
const MAX_LINKS = 100;

export function createAgentAccounts(deps: AgentAccountDependencies) {
  const {
    issuer,
    resource,
    links,
    provider,
    begun,
    tickets,
    publicUrl,
    audit,
    announceEvent,
    clock,
    random,
  } = deps;

  /** @throws RETURN_NOT_ALLOWED */
  const returnAddress = (returnTo: string): string => {
    const address = returnAddressOf(returnTo, { publicUrl: publicUrl(), origins: deps.origins });
    if (address === null) throw agentErrors.RETURN_NOT_ALLOWED();
    return address;
  };

  const viewOf = (link: Pick<AgentLink, 'createdAt'> | null): AgentAccountView => ({
    issuer,
    resource,
    connectedAt: link && toTimestamp(link.createdAt),
  });

  const linkOf = (userId: string) => links.findOne({ owner: linkOwner(issuer, userId) });

  /** @throws AGENT_ACCOUNT_TAKEN, ALREADY_CONNECTED */
  const connect = async (
    userId: string,
    subject: string,
    source: RequestSource,
  ): Promise<AgentAccountView> => {
    const [id, owner] = [linkId(issuer, subject), linkOwner(issuer, userId)];
    const link: AgentLink = { id, owner, userId, issuer, subject, createdAt: clock.now() };
    const existing = (await links.findOne({ id })) ?? (await linkOf(userId));
    if (!existing) {
      await deps.announce(changeOf('connected', link), userId, source);
      const proof = { of: 'agent-link', id, has: { userId } };
      const announced = await announceEvent('agents.connected', { userId, issuer }, proof);
      // The insertion decides between concurrent connections of the account, and of the user.
      if (await links.insert(link).then(() => true, nullIfTaken)) {
        await audit.record({ event: 'agents.connected', subject: userId, ip: source.ip, detail: issuer });
        await announced.emit();
        return viewOf(link);
      }
      await announced.withdraw();
    }
    const found = existing ?? (await links.findOne({ id })) ?? (await linkOf(userId));
    if (found?.id !== id) throw agentErrors.ALREADY_CONNECTED();
    if (found.userId !== userId) throw agentErrors.AGENT_ACCOUNT_TAKEN();
    return viewOf(found);
  };

  return {
    /**
     * Where to send the browser, and the value of its cookie for the callback; without a cookie back to the application, because
     * the provider does not respond.
     * @throws RETURN_NOT_ALLOWED
     */
    async begin({
      returnTo,
      codeChallenge,
    }: {
      returnTo: string;
      codeChallenge: string;
    }): Promise<{ url: string; id: string; cookie: string | undefined }> {
      const { id, checks } = newSignInChecks(clock, random);
      const address = returnAddress(returnTo);
      const url = await provider.authorizationUrl(checks, deps.callbackUrl(), undefined);
      if (!url) return { url: withQuery(address, 'error=connection_failed'), id, cookie: undefined };
      const cookie = begun.seal({ ...checks, returnTo: address, codeChallenge });
      return { url: url.href, id, cookie };
    },

    /** Where to send the browser: to the application, with a ticket or an error. @throws LOGIN_EXPIRED */
    async finish(response: URL, cookie: string | undefined): Promise<string> {
      const connection = cookie === undefined ? null : begun.open(cookie);
      if (!connection || connection.state !== response.searchParams.get('state'))
        throw agentErrors.LOGIN_EXPIRED();
      const { returnTo, codeChallenge } = connection;
      const identity = await provider.identify(response, connection);
      const isPerson = identity?.issuer === issuer && (identity.kind ?? 'human') === 'human';
      if (!identity || !isPerson) {
        const isRefused = response.searchParams.get('error') === 'access_denied';
        return withQuery(returnTo, `error=${isRefused ? 'access_denied' : 'connection_failed'}`);
      }
      const ticket = { id: newId('ticket-', clock, random), subject: identity.subject, codeChallenge };
      return withQuery(returnTo, `ticket=${tickets.seal(ticket)}`);
    },

    /**
     * Connects the account of the ticket.
     * @throws INVALID_TICKET, EMAIL_NOT_VERIFIED, AGENT_ACCOUNT_TAKEN, ALREADY_CONNECTED
     */
    async connect(
      user: { id: string; emailVerified: boolean },
      { ticket: text, codeVerifier }: { ticket: string; codeVerifier: string },
      source: RequestSource,
    ): Promise<AgentAccountView> {
      const ticket = tickets.open(text);
      if (!ticket || sha256(codeVerifier) !== ticket.codeChallenge) throw agentErrors.INVALID_TICKET();
      // A stranger who registered this address would keep access after its owner has reset the password.
      if (!user.emailVerified) throw agentErrors.EMAIL_NOT_VERIFIED();
      const use = { id: ticket.id, expiresAt: clock.now() + deps.ticketLifetimeMs };
      const connected = await deps.singleUse.run(use, () => connect(user.id, ticket.subject, source));
      if (!connected) throw agentErrors.INVALID_TICKET();
      return connected;
    },

    /** Ends the access of every agent with the next request. Does nothing if no account is connected. */
    async disconnect(userId: string, source: RequestSource) {
      const link = await linkOf(userId);
      if (!link) return;
      await deps.announce(changeOf('disconnected', link), userId, source);
      const proof = { of: 'agent-link', id: link.id };
      const announced = await announceEvent('agents.disconnected', { userId, issuer }, proof);
      if (!(await links.deleteOne({ id: link.id, userId }))) return announced.withdraw();
      await audit.record({ event: 'agents.disconnected', subject: userId, ip: source.ip, detail: issuer });
      await announced.emit();
    },

    view: async (userId: string): Promise<AgentAccountView> => viewOf(await linkOf(userId)),

    /** The user of an account of the identity provider. */
    userOf: async (subject: string): Promise<string | null> =>
      (await links.findOne({ id: linkId(issuer, subject) }))?.userId ?? null,

    /** For the export of a user: the connections with every provider that was configured. */
    async list(userId: string): Promise<{ issuer: string; subject: string; connectedAt: string }[]> {
      const { items } = await links.page({ where: { userId }, sort: 'createdAt', limit: MAX_LINKS });
      return items.map((link) => ({
        issuer: link.issuer,
        subject: link.subject,
        connectedAt: toTimestamp(link.createdAt),
      }));
    },
  };
}
