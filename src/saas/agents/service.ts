import type { Static } from 'typebox';
import { withQuery } from '../../core/config/public-url.js';
import { newSignInChecks, returnAddressOf, type SignInChecks } from '../../core/http/provider-sign-in.js';
import type { RequestSource } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { MINUTE } from '../../core/kernel/clock.js';
import { createSealed } from '../../core/kernel/sealed.js';
import { newId, sha256 } from '../../core/kernel/secrets.js';
import type { Announce } from '../../core/ops/events.js';
import type { SingleUse } from '../../core/ops/single-use.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { nullIfTaken } from '../../core/storage/collection.js';
import type { ChangeMails } from '../auth/mails.js';
import type { Provider } from '../login-providers/providers.js';
import { agentErrors } from './errors.js';
import type { AgentAccountView, AgentEvents, ConnectQuery } from './schemas.js';
import { type AgentLink, agentLinkCollection, linkChanges, linkId, linkOwner } from './store.js';

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

export interface AgentAccountOptions {
  issuer: string;
  resource: string;
  /** The sign-in at the identity provider, with which a person proves which account there is theirs. */
  provider: Provider;
  /** Remembers tickets. */
  singleUse: SingleUse;
  /** Logs that the identity provider does not respond. */
  onUnreachable(error: unknown): null;
  publicUrl(): string;
  /** The address of the API. */
  apiUrl(): string;
  /** The origins of applications, beside that of the public address. */
  origins: readonly string[];
  /** The secrets that encrypt what the browser keeps, the current one first. */
  secrets: readonly string[];
  /** Enqueues the mail about a change. */
  announce: ChangeMails['agents'];
  announceEvent: Announce<AgentEvents>;
}

/** How long a connection may take. Also enough to sign in to the application again before the account is connected. */
export const LIFETIME_MS = 10 * MINUTE;

/** Connections of one user: one for each issuer that was ever configured. */
const MAX_LINKS = 100;

export function createAgentAccounts(context: ModuleContext, options: AgentAccountOptions) {
  const { issuer, resource, provider, onUnreachable, publicUrl, announce, announceEvent } = options;
  const { audit, clock, random } = context;
  const links = agentLinkCollection(context.store);
  const sealing = { ...context, keys: options.secrets, lifetimeMs: LIFETIME_MS };
  const begun = createSealed<PendingConnection>('begun connections of agents', sealing);
  const tickets = createSealed<ConnectionTicket>('single-use tickets of connections of agents', sealing);
  const callbackUrl = () => `${options.apiUrl()}/auth/agents/callback`;

  /** @throws RETURN_NOT_ALLOWED */
  const returnAddress = (returnTo: string): string => {
    const address = returnAddressOf(returnTo, { publicUrl: publicUrl(), origins: options.origins });
    if (address === null) throw agentErrors.RETURN_NOT_ALLOWED();
    return address;
  };

  const viewOf = (link: AgentLink | null): AgentAccountView => ({
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
      const proof = { of: 'agent-link', id, has: { userId } };
      const announced = await announceEvent('agents.connected', { userId, issuer }, proof);
      // The insertion decides between concurrent connections of the account, and of the user.
      if (await links.insert(link).then(() => true, nullIfTaken)) {
        await context.commit([await announce(linkChanges.of('connected', userId, link), userId, source)]);
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
    callbackUrl,

    /**
     * Where to send the browser, and the value of its cookie for the callback; without a cookie back to the application, because
     * the provider does not respond.
     * @throws RETURN_NOT_ALLOWED
     */
    async begin({
      returnTo,
      codeChallenge,
    }: Static<typeof ConnectQuery>): Promise<{ url: string; id: string; cookie: string | undefined }> {
      const { id, checks } = newSignInChecks(clock, random);
      const address = returnAddress(returnTo);
      const url = await provider.authorizationUrl(checks, callbackUrl(), undefined).catch(onUnreachable);
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
      const identity = await provider.identify(response, connection).catch(onUnreachable);
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
      const use = { id: ticket.id, expiresAt: clock.now() + LIFETIME_MS };
      const connected = await options.singleUse.run(use, () => connect(user.id, ticket.subject, source));
      if (!connected) throw agentErrors.INVALID_TICKET();
      return connected;
    },

    /** Ends the access of every agent with the next request. Does nothing if no account is connected. */
    async disconnect(userId: string, source: RequestSource) {
      const link = await linkOf(userId);
      if (!link) return;
      const proof = { of: 'agent-link', id: link.id };
      const announced = await announceEvent('agents.disconnected', { userId, issuer }, proof);
      if (!(await links.deleteOne({ id: link.id, userId }))) return announced.withdraw();
      await context.commit([await announce(linkChanges.of('disconnected', userId, link), userId, source)]);
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
