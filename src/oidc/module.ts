import type { Pages } from '../http/pages.js';
import { authenticatedByRoute, type Guard, type Scope } from '../http/scope.js';
import type { ModuleContext } from '../server/module-context.js';
import type { ChangePassword } from './account.js';
import { createInteractionTokens } from './authorize/interaction-token.js';
import { createAuthorization } from './authorize/service.js';
import { createClaims } from './claims.js';
import { rejectCrossSiteForms } from './client-auth.js';
import { type ConsentService, createConsentService } from './consents.js';
import type { Directory } from './directory.js';
import { pathMetadataPlugin } from './discovery.js';
import { createHintReader, createKeys } from './keys.js';
import { createOwnPages, type OwnPages } from './own-pages.js';
import { oidcPlugin } from './plugin.js';
import { createPurges } from './purge.js';
import { createCookies, createSessionService, type SessionService } from './sessions.js';
import { consentCollection, grantCollection, sessionCollection } from './store.js';
import { createTokenService } from './tokens/service.js';

/** OpenID Connect: authorization, tokens, sessions and logout. */
export interface OidcModule {
  /** The access levels of the routes below. */
  guards: Record<'client' | 'bearer', Guard>;
  plugin(scope: Scope, options: { pages: Pages }): Promise<void>;
  /** The sign-in for pages of the provider itself. */
  ownPages(options: { pages: Pages }): OwnPages;
  sessions: Pick<SessionService, 'list' | 'end'>;
  consents: Pick<ConsentService, 'list'>;
  /** The identifiers of the published keys; the first signs. */
  keyIds: readonly string[];
  /** The metadata of an issuer with a path, which belongs to the root of the host. */
  pathMetadataPlugin(scope: Scope): Promise<void>;
}

export interface OidcModuleOptions {
  issuer(): string;
  /** The languages of the pages. */
  locales: readonly string[];
  /** Seeds of the signing keys, 64 hexadecimal characters each: the first signs, all of them are published. */
  seeds: readonly [string, ...string[]];
  directory: Directory;
  changePassword: ChangePassword;
  /** Domains in which an accepted invitation verifies the e-mail address. */
  trustedEmailDomains: readonly string[];
  /** Whether users may use HTTP Basic as agents do. */
  humansUseBasic: boolean;
}

export function createOidcModule(
  context: Pick<
    ModuleContext,
    'store' | 'audit' | 'clock' | 'random' | 'throttle' | 'jobs' | 'unknownWrites'
  >,
  options: OidcModuleOptions,
): OidcModule {
  const { issuer, locales, seeds, directory, changePassword, trustedEmailDomains, humansUseBasic } = options;
  const { store, audit, clock, throttle, jobs } = context;
  const collections = {
    grants: grantCollection(store),
    sessions: sessionCollection(store),
    consents: consentCollection(store),
  };
  const keys = createKeys(seeds);
  const readHint = createHintReader(keys, issuer);
  const claimsOf = createClaims(trustedEmailDomains);
  const shared = { ...context, ...collections, directory, issuer };
  const tokens = createTokenService({ ...shared, keys, claimsOf, seeds });
  const interactionTokens = createInteractionTokens(seeds, { clock });
  const authorization = createAuthorization({ ...shared, interactionTokens, readHint });
  const sessions = createSessionService(shared);
  const consents = createConsentService(collections.consents, clock);
  const cookies = createCookies(issuer);

  for (const [name, job] of Object.entries(createPurges(shared))) jobs.add(name, job);

  return {
    guards: { client: rejectCrossSiteForms, bearer: authenticatedByRoute },
    plugin: (scope, { pages }) =>
      oidcPlugin(scope, {
        audit,
        clock,
        throttle,
        directory,
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
        changePassword,
        meter: throttle.countRequest,
        humansUseBasic,
      }),
    ownPages: ({ pages }) => createOwnPages({ sessions, cookies, authorization, pages, issuer }),
    sessions,
    consents,
    keyIds: keys.jwks.keys.map(({ kid = '' }) => kid),
    pathMetadataPlugin: (scope) => pathMetadataPlugin(scope, { issuer, locales }),
  };
}
