import type { FastifyReply } from 'fastify';
import type { Pages } from '../../http/pages.js';
import { mountPath, type SignedInUser } from '../sessions.js';
import type { OwnPage } from './interaction-token.js';
import { formActionSource } from './redirect-uri.js';
import type { AuthorizationRequest } from './request.js';

/**
 * The sign-in page. It names the application, its address and the requested data, so that signing in includes consent.
 */
export function sendSignInPage(
  pages: Pages,
  reply: FastifyReply,
  request: AuthorizationRequest,
  issuer: string,
  form: { token: string; handle: string; problems?: string[] },
): FastifyReply {
  return sendPage(pages, reply, 'sign-in', request, {
    title: 'Sign in',
    action: `${mountPath(issuer)}/authorize/login`,
    ...form,
  });
}

/** The sign-in page for a page of the provider itself. */
export function sendOwnSignInPage(
  pages: Pages,
  reply: FastifyReply,
  { name }: OwnPage,
  issuer: string,
  form: { token: string; handle: string; problems?: string[] },
): FastifyReply {
  return pages.send(reply, 'sign-in', {
    title: 'Sign in',
    action: `${mountPath(issuer)}/authorize/login`,
    ownPage: name,
    ...form,
  });
}

/** The consent page for a signed-in user. */
export function sendConsentPage(
  pages: Pages,
  reply: FastifyReply,
  request: AuthorizationRequest,
  issuer: string,
  { token, user }: { token: string; user: SignedInUser },
): FastifyReply {
  const { prompt, ...others } = request.parameters;
  const mount = mountPath(issuer);
  return sendPage(pages, reply, 'consent', request, {
    title: 'Allow access',
    action: `${mount}/authorize/consent`,
    otherAccount: `${mount}/authorize?${new URLSearchParams({ ...others, prompt: 'login' })}`,
    handle: user.principal.handle,
    token,
  });
}

function sendPage(
  pages: Pages,
  reply: FastifyReply,
  name: string,
  { client, redirectUri, scope }: AuthorizationRequest,
  view: { title: string } & Record<string, unknown>,
): FastifyReply {
  const target = formActionSource(redirectUri);
  const returnsTo = new URL(redirectUri).host || target;
  const granted = scope.split(' ');
  const more = CLAIMS_BY_SCOPE.filter(([known]) => granted.includes(known)).map(([, sentence]) => sentence);
  const learns = [IDENTIFIER, ...more];
  const filled = { clientName: client.name || returnsTo, returnsTo, learns, ...view };
  // Browsers check every redirect after the submission, including those of the application itself.
  return pages.send(reply, name, filled, ['https:', target]);
}

/** Included in every scope, because userinfo returns it. */
const IDENTIFIER = 'your account ID';

const CLAIMS_BY_SCOPE = [
  ['profile', 'your name and user name'],
  ['email', 'your e-mail address'],
  ['offline_access', 'and to keep this access while you are not using the app'],
] as const;
