import type { Pages } from '../../core/http/pages.js';
import { authenticatedByRoute, type Guard, type Scope } from '../../core/http/scope.js';
import { SECOND } from '../../core/kernel/clock.js';
import type { Metrics } from '../../core/ops/metrics.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import type { Documents } from '../../core/outbound/documents.js';
import { createOutbound } from '../../core/outbound/request.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createInteractionTokens } from './authorize/interaction-token.js';
import { createSignInPages } from './authorize/pages.js';
import { createAuthorization } from './authorize/service.js';
import { createLogoutRequest } from './backchannel/request.js';
import {
  type BackchannelLogout,
  createBackchannelLogout,
  type LogoutFailures,
} from './backchannel/service.js';
import { type EndSessions, logoutNoticeCollection } from './backchannel/store.js';
import { ACR_VALUES, createClaims } from './claims.js';
import { createClientAssertions } from './client-assertion.js';
import { rejectCrossSiteForms } from './client-auth.js';
import { type ConsentService, createConsentService } from './consents.js';
import { createOrphanPurge } from './delegations/orphans.js';
import type { Delegations, EndedBy } from './delegations/service.js';
import { delegationCollection } from './delegations/store.js';
import type { createDeviceModule as CreateDevice } from './device/module.js';
import type { Directory, PasskeySignUp, SecondFactor, SignInPasskeys, SignUp } from './directory.js';
import { type ClientRegistration, pathMetadataPlugin } from './discovery.js';
import type {
  createIdentityAssertions as CreateAssertions,
  IdentityAssertionOptions,
} from './identity-assertions/module.js';
import { createHintReader, createKeys, type KeyMaterial } from './keys.js';
import { createOwnPages, type OwnPages } from './own-pages.js';
import { oidcPlugin } from './plugin.js';
import type { Proofs } from './proofs.js';
import { createPurges } from './purge.js';
import { createRefusals } from './refusals.js';
import type { Resources } from './resources.js';
import { createRevocations, revocationCollection } from './revocations/service.js';
import { createCookies, createSessionService, type SessionService } from './sessions.js';
import {
  consentCollection,
  grantCollection,
  pushedRequestCollection,
  sessionCollection,
  usedAssertionCollection,
  usedProofCollection,
} from './store.js';
import { createTokenService } from './tokens/service.js';

/** OpenID Connect: authorization, tokens, sessions and logout. */
export interface OidcModule {
  /** The access levels of the routes below. */
  guards: Record<'client' | 'bearer', Guard>;
  plugin(scope: Scope, options: { pages: Pages }): Promise<void>;
  /** The sign-in for pages of the provider itself. */
  ownPages(options: { pages: Pages }): OwnPages;
  sessions: Pick<SessionService, 'list' | 'end' | 'endOwn' | 'endOthers'>;
  endSessions: EndSessions;
  /** Runs the removal of a client, whose tokens and delegations end with it. */
  endClient<T>(id: string, change: () => Promise<T>, by: EndedBy): Promise<T>;
  logoutFailures: LogoutFailures;
  consents: Pick<ConsentService, 'list' | 'revoke' | 'forget'>;
  delegations: Pick<Delegations, 'list' | 'end' | 'endOwn'>;
  /** Removes the sessions and consents of a principal that was deleted. */
  forget(sub: string): Promise<void>;
  /** The published keys, those of one algorithm in the order of their configuration. */
  publishedKeys: readonly { id: string; algorithm: string }[];
  /** The metadata of an issuer with a path, which belongs to the root of the host. */
  pathMetadataPlugin(scope: Scope): Promise<void>;
}

export interface OidcModuleOptions {
  issuer(): string;
  /** The languages of the pages. */
  locales: readonly string[];
  keys: KeyMaterial;
  directory: Directory;
  resources: Resources;
  isSignUpOpen: boolean;
  clientRegistration: ClientRegistration;
  signUp: SignUp;
  /** Absent if it is not configured. */
  secondFactor: SecondFactor | undefined;
  /** Absent if they are not configured. */
  passkeys: SignInPasskeys | undefined;
  /** Absent if passkeys are not configured. */
  passkeySignUp: PasskeySignUp | undefined;
  /** Builds the device flow; absent if it is not enabled. */
  createDeviceModule: typeof CreateDevice | undefined;
  /** Issues and accepts identity assertions; absent if that is not enabled. */
  identityAssertions: (IdentityAssertionOptions & { create: typeof CreateAssertions }) | undefined;
  /** Whether people have pages at `/account`. */
  hasAccountPages: boolean;
  /** Domains in which an accepted invitation verifies the e-mail address. */
  trustedEmailDomains: readonly string[];
  /** Whether users may use HTTP Basic as agents do. */
  humansUseBasic: boolean;
  /** How long a used refresh token returns the same successor, in seconds. */
  refreshReuseWindow: number;
  /** Where clients publish their keys. */
  readDocument: Documents['read'];
  /** Whether applications in private networks or without TLS are told about ended sessions. */
  callsPrivateNetworks: boolean;
}

export function createOidcModule(
  context: Pick<
    ModuleContext,
    | 'store'
    | 'audit'
    | 'clock'
    | 'random'
    | 'log'
    | 'throttle'
    | 'jobs'
    | 'backgroundTasks'
    | 'unknownWrites'
    | 'metrics'
  >,
  options: OidcModuleOptions,
): OidcModule {
  const { issuer, locales, directory, resources, trustedEmailDomains } = options;
  const { humansUseBasic, callsPrivateNetworks } = options;
  const { store, audit, clock, throttle, jobs, metrics } = context;
  const collections = {
    grants: grantCollection(store),
    sessions: sessionCollection(store),
    consents: consentCollection(store),
    usedAssertions: usedAssertionCollection(store),
    usedProofs: usedProofCollection(store),
    pushedRequests: pushedRequestCollection(store),
  };
  const { seeds } = options.keys;
  const keys = createKeys(options.keys);
  const readHint = createHintReader(keys, issuer);
  const claimsOf = createClaims(trustedEmailDomains);
  const shared = { ...context, ...collections, directory, resources, issuer };
  const revocationDocuments = revocationCollection(store);
  const revocations = createRevocations({
    ...{ revocations: revocationDocuments, resources, clock },
    findPrincipal: directory.findPrincipal,
  });
  const consents = createConsentService(collections.consents, clock, revocations.endAccess);
  const delegationDocuments = delegationCollection(store);
  let openedDelegations: Promise<Delegations> | undefined;
  const delegations = () => {
    openedDelegations ??= import('./delegations/service.js').then(({ createDelegations }) =>
      createDelegations({ ...shared, delegations: delegationDocuments, revocations }),
    );
    return openedDelegations;
  };
  const assertions = createClientAssertions({ ...shared, readDocument: options.readDocument });
  const tokens = createTokenService({
    ...shared,
    ...{ consents, keys, claimsOf, seeds, revocations, delegations, assertions },
    namesGrants: options.identityAssertions?.issues,
    answers: store.requestTimeoutMs === undefined ? undefined : context.backgroundTasks,
    reuseWindowMs: options.refreshReuseWindow * SECOND,
  });
  const { identityAssertions: enabled, readDocument } = options;
  const identityAssertions = enabled?.create(enabled, {
    ...{ ...shared, consents, keys, claimsOf, delegations, readDocument },
  });
  const backchannel = createBackchannelLogout({
    ...shared,
    notices: logoutNoticeCollection(store),
    keys,
    post: createLogoutRequest(createOutbound({ reach: callsPrivateNetworks ? 'private' : 'public' })),
    wake: () => void jobs.runNow('backchannel-logout'),
  });
  let openedProofs: Promise<Proofs> | undefined;
  const proofs = () => {
    openedProofs ??= import('./proofs.js').then(({ createProofs }) => createProofs({ ...shared, seeds }));
    return openedProofs;
  };
  const pushed = async () => {
    const { createPushedAuthorization } = await import('./authorize/pushed.js');
    return createPushedAuthorization(collections.pushedRequests, context);
  };
  const interactionTokens = createInteractionTokens(seeds, { clock });
  const authorization = createAuthorization({
    ...shared,
    ...{ interactionTokens, backchannel, readHint, delegations, pushed },
  });
  const sessions = createSessionService({
    ...shared,
    follower: {
      continueIn: backchannel.continueIn,
      endSession: (sid, change) => revocations.end('sid', sid, () => backchannel.endSession(sid, change)),
    },
  });
  const device = options.createDeviceModule?.({
    ...shared,
    ...{ seeds, tokens, consents, sessions, backchannel, assertions },
  });
  const refusals = createRefusals({ ...shared, assertions });
  const cookies = createCookies(issuer);
  const signInPages = createSignInPages(issuer, options);
  const { clientRegistration } = options;
  const { isSignUpOpen, signUp, secondFactor, passkeys, passkeySignUp, hasAccountPages } = options;
  const ownPages: OidcModule['ownPages'] = ({ pages }) =>
    createOwnPages({ sessions, cookies, authorization, signInPages, isSignUpOpen, pages });
  const hasDeviceFlow = device !== undefined;
  const acrValues = secondFactor || passkeys ? ACR_VALUES : ACR_VALUES.slice(0, 1);

  for (const [name, job] of Object.entries(createPurges(shared))) jobs.add(name, job);
  jobs.add('client-assertion-purge', createExpiryPurge(collections.usedAssertions, clock));
  jobs.add('pushed-request-purge', createExpiryPurge(collections.pushedRequests, clock));
  jobs.add('dpop-proof-purge', createExpiryPurge(collections.usedProofs, clock));
  jobs.add('delegation-purge', createExpiryPurge(delegationDocuments, clock));
  jobs.add(
    'orphaned-delegations',
    createOrphanPurge(delegationDocuments, {
      ...{ directory, resources },
      end: async (id) => (await delegations()).end(id, { ip: 'local' }),
    }),
  );
  jobs.add('revocation-purge', createExpiryPurge(revocationDocuments, clock));
  jobs.add('backchannel-logout', backchannel.jobs.send);
  jobs.add('logout-notice-purge', backchannel.jobs.purge);
  if (metrics) measureNotices(metrics, backchannel);

  return {
    guards: { client: rejectCrossSiteForms, bearer: authenticatedByRoute },
    plugin: (scope, { pages }) =>
      oidcPlugin(scope, {
        audit,
        clock,
        throttle,
        assertions,
        proofs,
        pushed,
        directory,
        resources,
        issuer,
        locales,
        authorization,
        tokens,
        keys,
        readHint,
        sessions,
        consents,
        cookies,
        pages,
        signInPages,
        isSignUpOpen,
        clientRegistration,
        acrValues,
        signUp,
        secondFactor,
        passkeys,
        passkeySignUp,
        hasAccountPages,
        meter: throttle.countRequest,
        refusals,
        humansUseBasic,
        device,
        hasDeviceFlow,
        identityAssertions,
        ownPages: ownPages({ pages }),
        revocations: revocationDocuments,
      }),
    ownPages,
    sessions,
    endSessions: (sub, change) => revocations.endPrincipal(sub, () => backchannel.endSessions(sub, change)),
    async endClient(id, change, by) {
      const removed = await revocations.end('client_id', id, change);
      if (await resources.hasAny()) await (await delegations()).endAll({ clientId: id }, by);
      return removed;
    },
    logoutFailures: backchannel.failures,
    consents,
    delegations: {
      list: async (of) => ((await resources.hasAny()) ? (await delegations()).list(of) : []),
      end: async (id, by) => (await delegations()).end(id, by),
      endOwn: async (person, id, by) => (await delegations()).endOwn(person, id, by),
    },
    async forget(sub) {
      await Promise.all([
        sessions.forget(sub),
        consents.forget(sub),
        delegationDocuments.deleteMany({ person: sub }),
      ]);
    },
    publishedKeys: keys.jwks.keys.map(({ kid = '', alg = '' }) => ({ id: kid, algorithm: alg })),
    pathMetadataPlugin: (scope) =>
      pathMetadataPlugin(scope, {
        ...{ issuer, locales, isSignUpOpen, clientRegistration, acrValues, resources },
        ...{ hasDeviceFlow, identityAssertions },
        algorithms: keys.algorithms,
      }),
  };
}

/** Notices counted at a scrape. */
const MAX_COUNTED = 10_000;

function measureNotices(metrics: Metrics, { countDue }: Pick<BackchannelLogout, 'countDue'>): void {
  metrics.storeGauge(
    {
      name: 'backchannel_logouts_due',
      help: `Applications to be told that a session has ended, counted up to ${MAX_COUNTED}.`,
    },
    async () => [{ labels: {}, value: await countDue(MAX_COUNTED) }],
  );
}
