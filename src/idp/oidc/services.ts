import type { Pages } from '../../core/http/pages.js';
import { SECOND } from '../../core/kernel/clock.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import type { Documents } from '../../core/outbound/documents.js';
import { createOutbound } from '../../core/outbound/request.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { TrustService } from '../trust/service.js';
import { createInteractionTokens } from './authorize/interaction-token.js';
import { createSignInPages } from './authorize/pages.js';
import { createAuthorization } from './authorize/service.js';
import { createLogoutRequest } from './backchannel/request.js';
import { createBackchannelLogout } from './backchannel/service.js';
import { createClaims } from './claims.js';
import { createClientAssertions } from './client-assertion.js';
import { deviceRequestCollection } from './device/store.js';
import type { Directory, PasskeySignUp, SecondFactor, SignInPasskeys, SignUp } from './directory.js';
import { createFirstPartySignIn } from './first-party-sign-in.js';
import type { GrantedAccess } from './granted-access.js';
import { createHintReader, createKeys, keyMaterial } from './keys.js';
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
import { createGrantTypes } from './tokens/grant-types.js';
import { createTokenService, type TokenService } from './tokens/service.js';

/** The services of every module, and those of the product that OpenID Connect uses. */
export interface OidcContext extends ModuleContext {
  values: OidcConfiguration;
  production: boolean;
  issuer(): string;
  pages: Pages;
  /** Whether people have pages at `/account`. */
  hasAccountPages: boolean;
}

/** What other domains provide. */
export interface OidcModuleOptions {
  /** The languages of the pages. */
  locales: readonly string[];
  directory: Directory;
  resources: Resources;
  granted: GrantedAccess;
  isSignUpOpen: boolean;
  /** How clients become known without the operator. */
  clientRegistration: { acceptsMetadata: boolean; acceptsRegistration: boolean };
  signUp: SignUp;
  /** Absent if it is not configured. */
  secondFactor: SecondFactor | undefined;
  /** Absent if they are not configured. */
  passkeys: SignInPasskeys | undefined;
  /** Absent if passkeys are not configured. */
  passkeySignUp: PasskeySignUp | undefined;
  /** Which other providers are trusted; absent if identity assertions are not enabled. */
  trust: TrustService | undefined;
  /** Where clients publish their keys. */
  readDocument: Documents['read'];
}

/** What the routes and jobs of OpenID Connect use. */
export type OidcServices = Awaited<ReturnType<typeof createOidcServices>>;

export async function createOidcServices(context: OidcContext, options: OidcModuleOptions) {
  const { issuer, hasAccountPages, pages } = context;
  const { isSignUpOpen, passkeys, passkeySignUp } = options;
  const shared = createShared(context, options);
  const tokens = createTokens(context, options, shared);
  const signInServices = createSignInServices(context, shared);
  const { sessions, authorization } = signInServices;
  const cookies = createCookies(issuer);
  const signInPages = createSignInPages(issuer, { isSignUpOpen, hasAccountPages, passkeys, passkeySignUp });
  const device = await openDeviceFlow(context, shared, signInServices, tokens);
  const identityAssertions = await openIdentityAssertions(context, options, shared);
  const { resources } = options;
  return {
    ...shared,
    ...signInServices,
    tokens,
    cookies,
    signInPages,
    signIn: createFirstPartySignIn({ sessions, cookies, authorization, signInPages, isSignUpOpen, pages }),
    refusals: createRefusals(shared),
    device,
    identityAssertions,
    grantTypes: createGrantTypes({ tokens, resources, device, identityAssertions }),
  };
}

/** What the services share: documents, keys, and what needs nothing else. */
function createShared(context: OidcContext, options: OidcModuleOptions) {
  const { store, values, issuer } = context;
  const { granted, readDocument } = options;
  const material = keyMaterial(values);
  const { seeds } = material;
  const keys = createKeys(material);
  const usedAssertions = usedAssertionCollection(store);
  const usedProofs = usedProofCollection(store);
  const pushedRequests = pushedRequestCollection(store);
  let proofs: Promise<Proofs> | undefined;
  return {
    ...context,
    ...options,
    ...granted,
    grants: grantCollection(store),
    sessionDocuments: sessionCollection(store),
    usedAssertions,
    seeds,
    keys,
    claimsOf: createClaims(values.trustedEmailDomains ?? []),
    assertions: createClientAssertions({ ...context, usedAssertions, readDocument }),
    readHint: createHintReader(keys, issuer),
    /** Loaded with the first proof. */
    proofs(): Promise<Proofs> {
      proofs ??= import('./proofs.js').then(({ createProofs }) =>
        createProofs({ ...context, usedProofs, seeds }),
      );
      return proofs;
    },
    /** Loaded with the first request that was pushed. */
    async pushed() {
      const { createPushedAuthorization } = await import('./authorize/pushed.js');
      return createPushedAuthorization(pushedRequests, context);
    },
  };
}

type Shared = ReturnType<typeof createShared>;

function createTokens(
  { values, store, backgroundTasks }: OidcContext,
  { trust }: OidcModuleOptions,
  shared: Shared,
) {
  return createTokenService({
    ...shared,
    namesGrants: trust && values.identityAssertions !== 'accept',
    answers: store.requestTimeoutMs === undefined ? undefined : backgroundTasks,
    reuseWindowMs: values.refreshTokenReuseWindow * SECOND,
  });
}

/** Sessions, what applications are told about their end, and what is issued in them. */
function createSignInServices({ values, production, clock }: OidcContext, shared: Shared) {
  const { seeds } = shared;
  const reach = values.backchannelPrivateNetworks || !production ? 'private' : 'public';
  const post = createLogoutRequest(createOutbound({ reach }));
  const backchannel = createBackchannelLogout({ ...shared, post });
  const sessions = createSessionService(shared);
  const interactionTokens = createInteractionTokens(seeds, { clock });
  const authorization = createAuthorization({ ...shared, interactionTokens, backchannel, sessions });
  return { backchannel, sessions, authorization };
}

type SignInServices = ReturnType<typeof createSignInServices>;

/** Loads what issues and accepts identity assertions, if it is enabled. */
async function openIdentityAssertions(
  { values: { identityAssertions: roles } }: OidcContext,
  { trust }: OidcModuleOptions,
  shared: Shared,
) {
  if (!trust) return undefined;
  const { createIdentityAssertions } = await import('./identity-assertions/module.js');
  const allowed = { accepts: roles !== 'issue', issues: roles !== 'accept' };
  return createIdentityAssertions(allowed, { ...shared, trust });
}

/** Loads the sign-in of devices, if it is enabled. */
async function openDeviceFlow(
  { values, store, jobs, clock }: OidcContext,
  shared: Shared,
  signInServices: SignInServices,
  tokens: TokenService,
) {
  if (!values.deviceFlow) return undefined;
  const { createDeviceFlow } = await import('./device/service.js');
  const requests = deviceRequestCollection(store);
  jobs.add('device-request-purge', createExpiryPurge(requests, clock));
  return createDeviceFlow({ ...shared, ...signInServices, tokens, requests });
}
