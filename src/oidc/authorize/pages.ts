import { type Localized, message } from '../../http/messages.js';
import type { Page } from '../../http/pages.js';
import { SCOPES } from '../claims.js';
import { mountPath } from '../sessions.js';
import { formActionSource } from './redirect-uri.js';
import type { AuthorizationRequest } from './request.js';

/**
 * The sign-in page. It names the application, its address and the requested data, so that signing in includes consent.
 */
export function signInPage(
  request: AuthorizationRequest,
  issuer: string,
  form: { token: string; handle: string; problems?: Localized[]; wrong?: true },
): Page {
  return pageOf('sign-in', request, { ...linksOf(issuer), ...form });
}

/** The sign-in page for the console, the only page of the provider that is not part of its sign-in. */
export const ownSignInPage = (
  issuer: string,
  form: { token: string; handle: string; problems?: Localized[]; wrong?: true },
): Page => ({
  template: 'sign-in',
  view: { ...linksOf(issuer), isConsole: true, ...form },
});

const linksOf = (issuer: string) => ({
  action: `${mountPath(issuer)}/authorize/login`,
  forgotPassword: `${mountPath(issuer)}/account/forgot-password`,
});

/** The consent page for a signed-in user. */
export function consentPage(
  request: AuthorizationRequest,
  issuer: string,
  { token, handle }: { token: string; handle: string },
): Page {
  const { prompt, ...others } = request.parameters;
  const mount = mountPath(issuer);
  return pageOf('consent', request, {
    action: `${mount}/authorize/consent`,
    otherAccount: `${mount}/authorize?${new URLSearchParams({ ...others, prompt: 'login' })}`,
    handle,
    token,
  });
}

function pageOf(
  template: string,
  { client, redirectUri, scope, parameters }: AuthorizationRequest,
  view: Record<string, unknown>,
): Page {
  const target = formActionSource(redirectUri);
  const returnsTo = new URL(redirectUri).host || target;
  const granted = scope.split(' ');
  // `openid` is included in every scope, because userinfo returns the identifier.
  const shared = SCOPES.filter((known) => known === 'openid' || granted.includes(known));
  return {
    template,
    ...(client.logoUri !== undefined && { imageSources: [new URL(client.logoUri).origin] }),
    view: {
      clientLogo: client.logoUri,
      clientName: client.name || returnsTo,
      returnsTo,
      learns: shared.map((known) => message(`scope.${known}`)),
      ...view,
    },
    // Browsers check every redirect after the submission, including those of the application itself.
    formTargets: ['https:', target],
    uiLocales: parameters['ui_locales'],
  };
}
