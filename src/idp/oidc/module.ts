import type { Pages } from '../../core/http/pages.js';
import { authenticatedByRoute, type FastifyTypebox } from '../../core/http/routes.js';
import { SECOND } from '../../core/kernel/clock.js';
import type { Documents } from '../../core/outbound/documents.js';
import { createOutbound } from '../../core/outbound/request.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { TrustService } from '../trust/service.js';
import { createInteractionTokens } from './authorize/interaction-token.js';
import { createSignInPages } from './authorize/pages.js';
import { createAuthorization } from './authorize/service.js';
import { createLogoutRequest } from './backchannel/request.js';
import { createBackchannelLogout } from './backchannel/service.js';
import { ACR_VALUES, createClaims } from './claims.js';
import { createClientAssertions } from './client-assertion.js';
import { rejectCrossSiteForms } from './client-auth.js';
import type { ActiveDelegation, EndedBy } from './delegations/service.js';
import type { DeviceModuleDependencies } from './device/module.js';
import type { Directory, PasskeySignUp, SecondFactor, SignInPasskeys, SignUp } from './directory.js';
import { type ClientRegistration, pathMetadataPlugin } from './discovery.js';
import { createFirstPartySignIn } from './first-party-sign-in.js';
import type { GrantedAccess } from './granted-access.js';
import { addJobs } from './jobs.js';
import { createHintReader, createKeys, keyMaterial, publishedKeys } from './keys.js';
import { oidcPlugin } from './plugin.js';
import type { Proofs } from './proofs.js';
import { createRefusals } from './refusals.js';
import type { Resources } from './resources.js';
import type { OidcConfiguration } from './schemas.js';
import { createCookies, createSessionService } from './sessions.js';
import {
  grantCollection,
  pushedRequestCollection,
  sessionCollection,
  usedAssertionCollection,
  usedProofCollection,
} from './store.js';
import { createTokenService } from './tokens/service.js';

/** The configuration, and what other domains provide. */
export interface OidcModuleOptions {
  values: OidcConfiguration;
  production: boolean;
  issuer(): string;
  pages: Pages;
  /** The languages of the pages. */
  locales: readonly string[];
  directory: Directory;
  resources: Resources;
  granted: GrantedAccess;
  isSignUpOpen: boolean;
  clientRegistration: ClientRegistration;
  signUp: SignUp;
  /** Absent if it is not configured. */
  secondFactor: SecondFactor | undefined;
  /** Absent if they are not configured. */
  passkeys: SignInPasskeys | undefined;
  /** Absent if passkeys are not configured. */
  passkeySignUp: PasskeySignUp | undefined;
  /** Which other providers are trusted; absent if identity assertions are not enabled. */
  trust: TrustService | undefined;
  /** Whether people have pages at `/account`. */
  hasAccountPages: boolean;
  /** Where clients publish their keys. */
  readDocument: Documents['read'];
}

type OidcContext = Pick<
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
>;

/** OpenID Connect: authorization, tokens, sessions and logout. */
export async function createOidcModule(context: OidcContext, options: OidcModuleOptions) {
  const { values, issuer, granted, secondFactor, passkeys } = options;
  const services = await createServices(context, options);
  addJobs(context, services);
  const { keys, sessions, backchannel, device } = services;
  const cookies = createCookies(issuer);
  const signInPages = createSignInPages(issuer, options);
  const signIn = createFirstPartySignIn({ ...options, ...services, cookies, signInPages });
  const described = {
    ...options,
    hasDeviceFlow: device !== undefined,
    acrValues: secondFactor || passkeys ? ACR_VALUES : ACR_VALUES.slice(0, 1),
    identityAssertions: services.identityAssertions,
    keys,
  };
  return {
    /** The access levels of the routes below. */
    guards: { client: rejectCrossSiteForms, bearer: authenticatedByRoute },
    plugin: (fastify: FastifyTypebox): Promise<void> =>
      oidcPlugin(fastify, {
        ...described,
        ...services,
        cookies,
        signInPages,
        signIn,
        meter: context.throttle.countRequest,
        humansUseBasic: values.basicLogin === 'all',
        revocations: granted.revocationDocuments,
      }),
    /** The metadata of an issuer with a path, which belongs to the root of the host. */
    pathMetadataPlugin: (fastify: FastifyTypebox): Promise<void> => pathMetadataPlugin(fastify, described),
    /** For pages of the provider itself. */
    signIn,
    sessions,
    delegations: createDelegationLists(options),
    logoutFailures: backchannel.failures,
    /** The public keys, those of one algorithm in the order of their configuration. */
    publishedKeys: publishedKeys(values, keys),
    /** Removes the sessions, consents and delegations of a person who was deleted. */
    async forget(sub: string): Promise<void> {
      await Promise.all([
        sessions.forget(sub),
        granted.consents.forget(sub),
        granted.delegationDocuments.deleteMany({ person: sub }),
      ]);
    },
  };
}

export type OidcModule = Awaited<ReturnType<typeof createOidcModule>>;

export type OidcServices = Awaited<ReturnType<typeof createServices>>;

/** What the routes use. */
async function createServices(context: OidcContext, options: OidcModuleOptions) {
  const { values, issuer, granted } = options;
  const { revocations } = granted;
  const shared = createShared(context, options);
  const tokens = createTokenService({
    ...shared,
    namesGrants: options.trust && values.identityAssertions !== 'accept',
    answers: context.store.requestTimeoutMs === undefined ? undefined : context.backgroundTasks,
    reuseWindowMs: values.refreshTokenReuseWindow * SECOND,
  });
  const reach = values.backchannelPrivateNetworks || !options.production ? 'private' : 'public';
  const post = createLogoutRequest(createOutbound({ reach }));
  const backchannel = createBackchannelLogout({ ...shared, post });
  const sessions = createSessionService({
    ...shared,
    sessionHooks: {
      continueIn: backchannel.continueIn,
      endSession: (sid, change) => revocations.end('sid', sid, () => backchannel.endSession(sid, change)),
    },
  });
  const pushed = async () => {
    const { createPushedAuthorization } = await import('./authorize/pushed.js');
    return createPushedAuthorization(shared.pushedRequests, context);
  };
  let openedProofs: Promise<Proofs> | undefined;
  const proofs = (): Promise<Proofs> => {
    openedProofs ??= import('./proofs.js').then(({ createProofs }) => createProofs(shared));
    return openedProofs;
  };
  const readHint = createHintReader(shared.keys, issuer);
  const interactionTokens = createInteractionTokens(shared.seeds, context);
  const services = {
    ...shared,
    tokens,
    backchannel,
    sessions,
    pushed,
    proofs,
    readHint,
    authorization: createAuthorization({ ...shared, interactionTokens, backchannel, readHint, pushed }),
    refusals: createRefusals(shared),
    identityAssertions: await openIdentityAssertions(options, shared),
  };
  return { ...services, device: await openDeviceFlow(options, services) };
}

/** What the services share. */
function createShared(context: OidcContext, options: OidcModuleOptions) {
  const { values, issuer, directory, resources, granted, readDocument } = options;
  const { store } = context;
  const material = keyMaterial(values);
  const usedAssertions = usedAssertionCollection(store);
  return {
    ...context,
    ...granted,
    directory,
    resources,
    issuer,
    grants: grantCollection(store),
    sessions: sessionCollection(store),
    usedAssertions,
    usedProofs: usedProofCollection(store),
    pushedRequests: pushedRequestCollection(store),
    seeds: material.seeds,
    keys: createKeys(material),
    claimsOf: createClaims(values.trustedEmailDomains ?? []),
    assertions: createClientAssertions({ ...context, usedAssertions, readDocument, issuer }),
  };
}

type Shared = ReturnType<typeof createShared>;

/** Loads what issues and accepts identity assertions, if it is enabled. */
async function openIdentityAssertions({ values, trust, readDocument }: OidcModuleOptions, shared: Shared) {
  if (!trust) return undefined;
  const { createIdentityAssertions } = await import('./identity-assertions/module.js');
  const { identityAssertions: roles } = values;
  const allowed = { trust, accepts: roles !== 'issue', issues: roles !== 'accept' };
  return createIdentityAssertions(allowed, { ...shared, readDocument });
}

/** Loads the sign-in of devices, if it is enabled. */
async function openDeviceFlow({ values }: OidcModuleOptions, services: DeviceModuleDependencies) {
  if (!values.deviceFlow) return undefined;
  const { createDeviceModule } = await import('./device/module.js');
  return createDeviceModule(services);
}

/** The delegations for the account page and the console. Without a resource there are none, and nothing is loaded. */
function createDelegationLists({ granted: { delegations }, resources }: OidcModuleOptions) {
  return {
    list: async (of: { person: string } | { agent: string }): Promise<ActiveDelegation[]> =>
      (await resources.hasAny()) ? (await delegations()).list(of) : [],
    end: async (id: string, by: EndedBy): Promise<boolean> => (await delegations()).end(id, by),
    endOwn: async (person: string, id: string, by: EndedBy): Promise<boolean> =>
      (await delegations()).endOwn(person, id, by),
  };
}
