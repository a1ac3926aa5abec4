import type { Static } from 'typebox';
import { withQuery } from '../../core/config/public-url.js';
import type { RequestSource } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { decideAndCommit, type Effect } from '../../core/ops/commit.js';
import type { EventOf } from '../../core/ops/events.js';
import type { SingleUse } from '../../core/ops/single-use.js';
import { createProviderSignIns, type Redemption } from '../../core/outbound/provider-sign-in.js';
import type { ReadAccount } from '../../core/server/contributions.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { allOf } from '../../core/storage/pages.js';
import type { federationErrors } from '../login-providers/errors.js';
import type { Provider } from '../login-providers/providers.js';
import { agentErrors } from './errors.js';
import type { AgentAccountView, AgentEvents, ConnectQuery } from './schemas.js';
import { type AgentLink, agentLinkCollection, linkId, linkOwner } from './store.js';

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
  /** Those of a sign-in at any provider. */
  errors: typeof federationErrors;
}

export function createAgentAccounts(context: ModuleContext, options: AgentAccountOptions) {
  const { issuer, resource, provider, onUnreachable, readUser, event } = options;
  const { commit, audit, clock } = context;
  const links = agentLinkCollection(context.store);
  /** A ticket says who has signed in at the identity provider. */
  const signIns = createProviderSignIns<object, { subject: string }>({
    ...{ ...context, ...options },
    purpose: 'connections of agents',
  });
  const callbackUrl = () => `${options.apiUrl()}/auth/agents/callback`;

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

  return {
    callbackUrl,

    /**
     * Where to send the browser, and the value of its cookie for the callback; without a cookie back to the application, because
     * the provider does not respond.
     * @throws RETURN_NOT_ALLOWED
     */
    async begin(
      query: Static<typeof ConnectQuery>,
    ): Promise<{ url: string; id: string; cookie: string | undefined }> {
      const { id, pending, cookie } = signIns.begin(query, {});
      const url = await provider.authorizationUrl(pending, callbackUrl(), undefined).catch(onUnreachable);
      return url
        ? { url: url.href, id, cookie }
        : { url: withQuery(pending.returnTo, 'error=connection_failed'), id, cookie: undefined };
    },

    /** Where to send the browser: to the application, with a ticket or an error. @throws LOGIN_EXPIRED */
    async finish(response: URL, cookie: string | undefined): Promise<string> {
      const pending = signIns.open(response, cookie);
      const identity = await provider.identify(response, pending).catch(onUnreachable);
      const isPerson = identity?.issuer === issuer && (identity.kind ?? 'human') === 'human';
      const proven = identity && isPerson ? { subject: identity.subject } : null;
      return signIns.addressAfter(response, pending, { proven, failure: 'connection_failed' });
    },

    /**
     * Connects the account of the ticket.
     * @throws INVALID_TICKET, EMAIL_NOT_VERIFIED, UNAUTHENTICATED, AGENT_ACCOUNT_TAKEN, ALREADY_CONNECTED
     */
    connect: (
      { id: userId, emailVerified }: { id: string; emailVerified: boolean },
      given: Redemption,
      source: RequestSource,
    ): Promise<AgentAccountView> =>
      signIns.redeem(given, async ({ subject }) => {
        // A stranger who registered this address would keep access after its owner has reset the password.
        if (!emailVerified) throw options.errors.EMAIL_NOT_VERIFIED();
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
      }),

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
    userOf: async ({ subject }: { subject: string }): Promise<string | null> =>
      (await links.findOne({ id: linkId(issuer, subject) }))?.userId ?? null,

    /** For the export of a user: the connections with every provider that was configured. */
    async list(userId: string): Promise<{ issuer: string; subject: string; connectedAt: string }[]> {
      return (await allOf(links, { where: { userId }, sort: 'createdAt' })).map((link) => ({
        issuer: link.issuer,
        subject: link.subject,
        connectedAt: toTimestamp(link.createdAt),
      }));
    },
  };
}
