import type { Static } from 'typebox';
import { withQuery } from '../../core/config/public-url.js';
import { newSignInChecks, returnAddressOf, type SignInChecks } from '../../core/http/provider-sign-in.js';
import type { RequestSource } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { MINUTE } from '../../core/kernel/clock.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { createSealed } from '../../core/kernel/sealed.js';
import { newId, sha256 } from '../../core/kernel/secrets.js';
import { decideAndCommit, type Effect } from '../../core/ops/commit.js';
import type { EventOf } from '../../core/ops/events.js';
import type { SingleUse } from '../../core/ops/single-use.js';
import type { ReadAccount } from '../../core/server/contributions.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Provider } from '../login-providers/providers.js';
import { agentErrors } from './errors.js';
import type { AgentAccountView, AgentEvents, ConnectQuery } from './schemas.js';
import { type AgentLink, agentLinkCollection, linkId, linkOwner } from './store.js';

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

/** The user of a connection. */
export interface LinkedUser extends ReadAccount {
  /** The mail about a change. */
  agentsMail(change: 'connected' | 'disconnected', source: RequestSource): Effect;
}

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
  /** Null if there is no such user. */
  readUser(id: string): Promise<LinkedUser | null>;
  event: EventOf<AgentEvents>;
}

/** How long a connection may take. Also enough to sign in to the application again before the account is connected. */
export const LIFETIME_MS = 10 * MINUTE;

/** Connections of one user: one for each issuer that was ever configured. */
const MAX_LINKS = 100;

export function createAgentAccounts(context: ModuleContext, options: AgentAccountOptions) {
  const { issuer, resource, provider, onUnreachable, publicUrl, readUser, event } = options;
  const { commit, audit, clock, random } = context;
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

  /** What a change is stored with. */
  const effectsOf = async (
    change: 'connected' | 'disconnected',
    userId: string,
    user: LinkedUser,
    source: RequestSource,
  ) => {
    const record = { event: `agents.${change}`, subject: userId, ip: source.ip, detail: issuer };
    return [
      user.nextRevision,
      user.agentsMail(change, source),
      await event(`agents.${change}`, { userId, issuer }),
      audit.entry(record),
    ];
  };

  /** @throws UNAUTHENTICATED, AGENT_ACCOUNT_TAKEN, ALREADY_CONNECTED */
  const connect = (userId: string, subject: string, source: RequestSource): Promise<AgentAccountView> => {
    const [id, owner] = [linkId(issuer, subject), linkOwner(issuer, userId)];
    const link: AgentLink = { id, owner, userId, issuer, subject, createdAt: clock.now() };
    return decideAndCommit(commit, async () => {
      const user = await readUser(userId);
      if (!user) throw httpErrors.UNAUTHENTICATED();
      const existing = (await links.findOne({ id })) ?? (await linkOf(userId));
      if (existing && existing.id !== id) throw agentErrors.ALREADY_CONNECTED();
      if (existing && existing.userId !== userId) throw agentErrors.AGENT_ACCOUNT_TAKEN();
      if (existing) return { result: viewOf(existing) };
      const effects = await effectsOf('connected', userId, user, source);
      return { parts: [links.inserting(link), ...effects], result: viewOf(link), repeatIfTaken: true };
    });
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
    disconnect: (userId: string, source: RequestSource): Promise<void> =>
      decideAndCommit(commit, async () => {
        const [user, link] = await Promise.all([readUser(userId), linkOf(userId)]);
        if (!user || !link) return { result: undefined };
        const effects = await effectsOf('disconnected', userId, user, source);
        return { parts: [links.deleting({ id: link.id, userId }), ...effects], result: undefined };
      }),

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
