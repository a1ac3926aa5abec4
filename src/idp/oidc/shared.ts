import type { Pages } from '../../core/http/pages.js';
import { SECOND } from '../../core/kernel/clock.js';
import { Coalescing, KeyedSemaphore } from '../../core/ops/semaphore.js';
import type { Documents } from '../../core/outbound/documents.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Groups } from '../groups/service.js';
import type { TrustService } from '../trust/service.js';
import { createPushedAuthorization } from './authorize/pushed.js';
import { createClaims, type IsVerified } from './claims.js';
import { createClientAssertions } from './client-assertion.js';
import type {
  ApprovalMail,
  Directory,
  PasskeySignUp,
  SecondFactor,
  SignInPasskeys,
  SignUp,
} from './directory.js';
import type { GrantedAccess } from './granted-access.js';
import { createHintReader, createKeys, keyMaterial } from './keys.js';
import { createProofs } from './proofs.js';
import type { Resources } from './resources.js';
import type { OidcConfiguration } from './schemas.js';
import {
  grantCollection,
  pushedRequestCollection,
  sessionCollection,
  usedAssertionCollection,
  usedProofCollection,
} from './store.js';
import { trackUnknownGrantWrites } from './tokens/unknown-grants.js';
import { createWorkloads } from './workloads.js';

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
  groups: Pick<Groups, 'inUse'>;
  isVerified: IsVerified;
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
  /** The mail that asks a person; absent without a mail server. */
  mailApproval: ApprovalMail | undefined;
  /** Where clients publish their keys. */
  readDocument: Documents['read'];
}

/** Exchanges of one refresh token that wait; further ones are refused. */
const MAX_RENEWALS = 1024;

/** What all services of OpenID Connect use: documents, keys, and what needs no other service. */
export type OidcShared = ReturnType<typeof createShared>;

export function createShared(context: OidcContext, options: OidcModuleOptions) {
  const { store, values, issuer, backgroundTasks, unknownWrites, clock } = context;
  const { granted, readDocument, trust } = options;
  const material = keyMaterial(values);
  const { seeds } = material;
  const keys = createKeys(material);
  const grants = grantCollection(store);
  const usedAssertions = usedAssertionCollection(store);
  const workloads = createWorkloads({ ...context, ...options });
  return {
    ...context,
    ...options,
    ...granted,
    grants,
    sessionDocuments: sessionCollection(store),
    usedAssertions,
    /** Keys of what the provider derives or authenticates: the first is used for new ones, all of them for verification. */
    seeds,
    keys,
    claimsOf: createClaims(options.isVerified),
    assertions: createClientAssertions({
      ...{ ...context, usedAssertions, readDocument },
      acceptsTokenEndpoint: values.clientAssertions === 'token-endpoint',
      verifyWorkload: workloads.verify,
    }),
    workloads,
    readHint: createHintReader(keys, issuer),
    /** How long the previous refresh token still returns the same successor, for a second tab or a lost response. */
    reuseWindowMs: values.refreshTokenReuseWindow * SECOND,
    ...trackUnknownGrantWrites(unknownWrites, { grants, clock }),
    /** The exchanges of each refresh token that does not rotate, one after another. */
    renewals: new KeyedSemaphore(1, MAX_RENEWALS),
    /** Exchanges for the same that run, whose answer all get that ask meanwhile. */
    sameRenewals: new Coalescing(),
    /** Marks redemptions as answered. Absent if the outcome of every write is known. */
    answers: store.requestTimeoutMs === undefined ? undefined : backgroundTasks,
    /** Whether identity assertions are issued for other authorization servers; id_tokens then name their grant. */
    issuesAssertions: trust !== undefined && values.identityAssertions !== 'accept',
    /** Whether identity assertions of other providers are accepted. */
    acceptsAssertions: trust !== undefined && values.identityAssertions !== 'issue',
    proofs: createProofs({ ...context, usedProofs: usedProofCollection(store), seeds }),
    pushed: createPushedAuthorization(pushedRequestCollection(store), context),
  };
}
