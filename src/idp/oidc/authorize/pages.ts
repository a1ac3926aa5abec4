import { mountPath } from '../../../core/config/public-url.js';
import { type Localized, message } from '../../../core/http/messages.js';
import type { Page } from '../../../core/http/pages.js';
import { DAY } from '../../../core/kernel/clock.js';
import type { Enrolment } from '../../../shared/factors/totp.js';
import { findRefusal, NEW_PERSON } from '../admission.js';
import { SCOPES } from '../claims.js';
import { type Consent, type MissingConsent, missingIn } from '../consents.js';
import type { Client } from '../directory.js';
import { REFRESH_MAX_LIFETIME_MS } from '../grant-tokens.js';
import { namesIn, scopesOf, type Target } from '../resources.js';
import type { OidcShared } from '../shared.js';
import { asksForSignUp } from './interaction.js';
import type { FirstPartyPage } from './interaction-token.js';
import { withResponse } from './redirect-uri.js';
import { type AuthorizationRequest, type ErrorResponse, searchOf } from './request.js';
import type { AuthorizationResponse } from './response.js';
import { isWebUri } from './rules.js';

/** What a sign-in is for: an application, or a page of the provider itself. */
export type SignInRequest = AuthorizationRequest | FirstPartyPage;

/** The application or the page, for the audit. */
export const nameOf = (signInRequest: SignInRequest): string =>
  'returnTo' in signInRequest ? signInRequest.name : signInRequest.client.id;

/** What the user has typed, and what is wrong with it. */
export interface FormState {
  token: string;
  handle: string;
  problems?: Localized[];
  wrong?: Readonly<Partial<Record<'handle' | 'name' | 'password', true>>> | true;
  name?: string | undefined;
}

/**
 * The pages on which a user signs in or signs up. They name the application, its address and the requested data, so that
 * signing in includes consent.
 */
export type SignInPages = ReturnType<typeof createSignInPages>;

export function createSignInPages({
  issuer,
  isSignUpOpen,
  hasAccountPages,
  passkeys,
  passkeySignUp,
}: OidcShared) {
  const mount = () => mountPath(issuer());

  const pageFor = (template: string, signInRequest: SignInRequest, view: Record<string, unknown>): Page =>
    'returnTo' in signInRequest
      ? { template, view: { destination: message(DESTINATIONS[signInRequest.name]), ...view } }
      : pageOf(template, signInRequest, {
          cancelAction: `${mount()}/authorize/consent`,
          ...view,
        });

  /** Not for the console, which needs a role. */
  const offersSignUp = (signInRequest: SignInRequest): boolean =>
    isSignUpOpen &&
    ('returnTo' in signInRequest
      ? hasAccountPages && signInRequest.name === 'the account page'
      : admitsNewPeople(signInRequest));

  return {
    signIn: (signInRequest: SignInRequest, form: FormState): Page => ({
      ...pageFor('sign-in', signInRequest, {
        action: `${mount()}/authorize/login`,
        forgotPassword: `${mount()}/account/forgot-password`,
        ...(offersSignUp(signInRequest) && { signUpHref: signUpHref(signInRequest, mount()) }),
        ...(passkeys && {
          passkey: { action: `${mount()}/authorize/passkey`, options: passkeys.requestOptions(form.token) },
        }),
        ...form,
      }),
      ...(passkeys && { script: passkeys.script }),
    }),

    signUp: (signInRequest: SignInRequest, form: FormState): Page => ({
      ...pageFor('sign-up', signInRequest, {
        action: `${mount()}/authorize/sign-up`,
        signInHref: signInHref(signInRequest, mount()),
        ...(passkeySignUp && {
          passkey: {
            action: `${mount()}/authorize/sign-up/passkey`,
            options: passkeySignUp.creationOptions(form.token),
          },
        }),
        ...form,
      }),
      ...(passkeySignUp && { script: passkeySignUp.script }),
    }),

    /** Asks for the second factor, after the password. */
    secondFactor: (signInRequest: SignInRequest, form: { token: string; problems?: Localized[] }): Page =>
      pageFor('second-factor', signInRequest, {
        action: `${mount()}/authorize/second-factor`,
        signInHref: signInHref(signInRequest, mount()),
        issuer: issuer(),
        ...form,
      }),

    /** Sets up the second factor that the operator requires, after the password. */
    secondFactorEnrolment: (
      signInRequest: SignInRequest,
      { enrolment, ...form }: { token: string; enrolment: Enrolment | null; problems?: Localized[] },
    ): Page =>
      pageFor('second-factor-enrolment', signInRequest, {
        action: `${mount()}/authorize/second-factor/enrol`,
        signInHref: signInHref(signInRequest, mount()),
        issuer: issuer(),
        enrolment,
        ...form,
      }),

    /** The recovery codes of the new second factor, and the way on. */
    recoveryCodes: (signInRequest: SignInRequest, codes: readonly string[]): Page => ({
      template: 'account-recovery-codes',
      view: { codes, doneHref: continueHref(signInRequest, mount()) },
    }),

    /** Before a second factor is set up, the person has to follow the link that was sent. */
    unconfirmed: (signInRequest: SignInRequest, address: string): Page =>
      pageFor('second-factor-unconfirmed', signInRequest, {
        sent: message('second-factor-unconfirmed.sent', { handle: address }),
        signInHref: signInHref(signInRequest, mount()),
      }),

    /** Where sign-up is not open. */
    signUpClosed: (signInRequest: SignInRequest): Page => ({
      template: 'sign-up-closed',
      view: { issuer: issuer(), signInHref: signInHref(signInRequest, mount()) },
    }),
  };
}

const DESTINATIONS = {
  'the console': 'sign-in.console',
  'the account page': 'sign-in.account',
  'the device page': 'sign-in.device',
  'the page of an approval': 'sign-in.approval',
} as const;

/** Whether a new person could be the user of this request. */
export const admitsNewPeople = ({ hintedSub, ...request }: AuthorizationRequest): boolean =>
  hintedSub === undefined && findRefusal(request, NEW_PERSON) === null;

function signUpHref(signInRequest: SignInRequest, mount: string): string {
  if ('returnTo' in signInRequest) return `${mount}/account/sign-up`;
  return `${mount}/authorize?${searchOf(signInRequest, { prompt: 'create', page: 'sign-up' })}`;
}

function signInHref(signInRequest: SignInRequest, mount: string): string {
  if ('returnTo' in signInRequest) return mount + signInRequest.returnTo;
  const change = asksForSignUp(signInRequest) ? { prompt: undefined, page: 'sign-in' as const } : {};
  return `${mount}/authorize?${searchOf(signInRequest, change)}`;
}

/** Where a person goes who has just signed in: the request of the application is answered without another page. */
export function continueHref(signInRequest: SignInRequest, mount: string): string {
  if ('returnTo' in signInRequest) return mount + signInRequest.returnTo;
  // The person has just signed in, as the page of a delegation or of an approval may require.
  const change = signInRequest.delegation || signInRequest.details ? { max_age: undefined } : {};
  return `${mount}/authorize?${searchOf(signInRequest, { prompt: undefined, ...change })}`;
}

/** Where a person goes who wants to use another account. */
export const otherAccountHref = (
  request: Pick<AuthorizationRequest, 'parameters' | 'pushed'>,
  mount: string,
): string => `${mount}/authorize?${searchOf(request, { prompt: 'login', page: 'sign-in' })}`;

/** Says that only agents sign in to an application, before a person types a password. */
export function agentsOnlyPage(request: AuthorizationRequest, response: AuthorizationResponse): Page {
  const { redirectUri, isFormPost, values } = response;
  const returnHref = isFormPost ? undefined : withResponse(redirectUri, values);
  return pageOf('agents-only', request, { returnHref });
}

/** Says that this person may not use an application, and whom to ask. */
export function notAdmittedPage(
  {
    client,
    redirectUri,
    parameters,
    violation: _,
    ...rest
  }: ErrorResponse & Pick<AuthorizationRequest, 'pushed'>,
  response: AuthorizationResponse,
  { issuer, contact }: { issuer: string; contact: string | undefined },
): Page {
  const { isFormPost, values } = response;
  return {
    template: 'not-admitted',
    view: {
      clientName: client.name || returnsToOf(redirectUri),
      returnsTo: returnsToOf(redirectUri),
      ...claimsOfClient(client, redirectUri),
      issuer,
      contact,
      contactHref: contact && (contact.startsWith('https:') ? contact : `mailto:${contact}`),
      otherAccount: otherAccountHref({ parameters, ...rest }, mountPath(issuer)),
      returnHref: isFormPost ? undefined : withResponse(response.redirectUri, values),
    },
    leadsElsewhere: true,
    uiLocales: parameters['ui_locales'],
  };
}

/**
 * The consent page for a signed-in user. It asks for what the user has not allowed yet, or for everything if that is nothing
 * or the application asks for it.
 */
export function consentPage(
  request: AuthorizationRequest,
  issuer: string,
  { token, handle, consent }: { token: string; handle: string; consent: Consent },
): Page {
  const { prompt } = request.parameters;
  const mount = mountPath(issuer);
  const missing = missingIn(consent, request.scope, scopesOf(request.targets));
  const isFirst = consent.scopes.length + consent.resources.length === 0;
  const isMore = !isFirst && missing.scopes.length + missing.resources.length > 0;
  const asked = isMore && prompt === undefined ? missing : undefined;
  const view = {
    isMore: asked !== undefined,
    action: `${mount}/authorize/consent`,
    otherAccount: otherAccountHref(request, mount),
    handle,
    token,
  };
  return pageOf('consent', request, view, asked);
}

/** Asks a person to approve one action, with what the page of an agent's request shows. */
export function approvalPage(
  request: AuthorizationRequest,
  issuer: string,
  { target, ...view }: { target: Target; handle: string; token: string },
): Page {
  const mount = mountPath(issuer);
  const links = { action: `${mount}/authorize/consent`, otherAccount: otherAccountHref(request, mount) };
  return pageOf('approval', request, { ...viewOfTarget(target, false), ...links, ...view });
}

/** Says what is wrong with a request, with a link to the application, because the address it leads to is not verified. */
export function refusedRequestPage(
  { client, violation }: ErrorResponse,
  response: AuthorizationResponse,
): Page {
  const { redirectUri, values } = response;
  return {
    template: 'request-refused',
    view: {
      clientName: client.name || returnsToOf(redirectUri),
      returnsTo: returnsToOf(redirectUri),
      ...claimsOfClient(client, redirectUri),
      explanation: violation.description,
      returnHref: withResponse(redirectUri, values),
    },
  };
}

/** The host after another scheme is chosen by the client and says nothing about where the browser goes. */
function returnsToOf(redirectUri: string): string {
  const { host, protocol } = new URL(redirectUri);
  return isWebUri(redirectUri) ? host : protocol;
}

/** What the page says about a client that the operator has not registered, as it has the metadata of an agent. */
function claimsOfClient({ id, origin, unused, agent }: Client, redirectUri: string): Record<string, unknown> {
  if (origin === undefined || agent) return {};
  return {
    isUnverified: true,
    // The whole host, however long: it is all that identifies the client.
    clientHost: origin === 'metadata' ? new URL(id).host : undefined,
    returnsToDevice: !redirectUri.startsWith('https:'),
    isFirstVisit: unused === true,
  };
}

export function pageOf(
  template: string,
  { client, redirectUri, scope, targets, parameters, delegation, details }: AuthorizationRequest,
  view: Record<string, unknown>,
  asked?: MissingConsent,
): Page {
  const returnsTo = returnsToOf(redirectUri);
  const clientName = client.name || returnsTo;
  const isLasting = namesIn(scope).includes('offline_access');
  return {
    template,
    ...(client.logoUri !== undefined && { imageSources: [new URL(client.logoUri).origin] }),
    view: {
      clientLogo: client.logoUri,
      clientName,
      returnsTo,
      // The sign-in allows nothing then: a page of its own asks for it.
      ...(delegation && { next: message('delegation.next', { clientName }) }),
      ...(details && { next: message('approval.next', { clientName }) }),
      ...claimsOfClient(client, redirectUri),
      learns: asked ? learnsFrom(asked.scopes, client) : scopesShown(scope, client),
      resources: shownTargets(targets, asked).map((target) => viewOfTarget(target, isLasting)),
      ...view,
    },
    leadsElsewhere: true,
    uiLocales: parameters['ui_locales'],
  };
}

/** What the application will see. The identifier is in every token. */
export const scopesShown = (scope: string, client: Pick<Client, 'claims'>): Localized[] =>
  learnsFrom(['openid', ...namesIn(scope)], client);

const learnsFrom = (scopes: readonly string[], { claims }: Pick<Client, 'claims'>): Localized[] => {
  const shown = SCOPES.filter((known) => scopes.includes(known)).map((known) => message(`scope.${known}`));
  if (claims === undefined || !scopes.includes('profile')) return shown;
  const names = claims.replaceAll(/:[^,]*/g, '').replaceAll(',', ', ');
  return [...shown, message('scope.claims', { names })];
};

/** The resources of a request, or of them those that the user is asked for, with these scopes. */
const shownTargets = (targets: readonly Target[], asked: MissingConsent | undefined): readonly Target[] =>
  asked
    ? targets.flatMap(({ resource }) => {
        const missing = asked.resources.find((one) => one.resource === resource.identifier);
        return missing ? [{ resource, scopes: missing.scopes }] : [];
      })
    : targets;

export const viewOfTarget = ({ resource, scopes }: Target, isLasting: boolean) => ({
  resourceName: resource.name,
  identifier: resource.identifier,
  permits: resource.scopes
    .filter(({ name }) => scopes.includes(name))
    .map(({ description, sensitive = false }) => ({ description, sensitive })),
  lasts: isLasting
    ? message('consent.lasts', { days: String(REFRESH_MAX_LIFETIME_MS / DAY) })
    : message('consent.ends', { minutes: String(Math.ceil(resource.tokenLifetimeSeconds / 60)) }),
});
