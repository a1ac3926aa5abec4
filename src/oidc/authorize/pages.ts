import type { FastifyReply } from 'fastify';
import type { Pages } from '../../http/pages.js';
import { mountPath } from '../cookies.js';
import type { Visitor } from '../sessions.js';
import { formTarget } from './redirect-uri.js';
import type { AuthorizationRequest } from './request.js';

/** The form names who asks, where it returns to and what it learns: typing the password there is the consent. */
export function showSignIn(
  pages: Pages,
  reply: FastifyReply,
  request: AuthorizationRequest,
  issuer: string,
  form: { token: string; handle: string; problems?: string[] },
): FastifyReply {
  return show(pages, reply, 'sign-in', request, {
    title: 'Sign in',
    action: `${mountPath(issuer)}/authorize/login`,
    ...form,
  });
}

/** Asks somebody who is signed in already. */
export function showConsent(
  pages: Pages,
  reply: FastifyReply,
  request: AuthorizationRequest,
  issuer: string,
  { token, visitor }: { token: string; visitor: Visitor },
): FastifyReply {
  const { prompt, ...others } = request.parameters;
  const mount = mountPath(issuer);
  return show(pages, reply, 'consent', request, {
    title: 'Allow access',
    action: `${mount}/authorize/consent`,
    otherAccount: `${mount}/authorize?${new URLSearchParams({ ...others, prompt: 'login' })}`,
    handle: visitor.principal.handle,
    token,
  });
}

function show(
  pages: Pages,
  reply: FastifyReply,
  name: string,
  { client, redirectUri, scope }: AuthorizationRequest,
  view: { title: string } & Record<string, unknown>,
): FastifyReply {
  const target = formTarget(redirectUri);
  const returnsTo = new URL(redirectUri).host || target;
  const granted = scope.split(' ');
  const more = LEARNED.filter(([known]) => granted.includes(known)).map(([, sentence]) => sentence);
  const learns = [IDENTIFIER, ...more];
  const filled = { clientName: client.name || returnsTo, returnsTo, learns, ...view };
  // Browsers check every redirect that follows a submission, so the application's own ones count, too.
  return pages.send(reply, name, filled, ['https:', target]);
}

/** Userinfo tells it whatever was granted. */
const IDENTIFIER = 'your account ID';

const LEARNED = [
  ['profile', 'your name and user name'],
  ['email', 'your e-mail address'],
  ['offline_access', 'and to keep this access while you are not using the app'],
] as const;
