import type { FastifyReply } from 'fastify';
import type { Page, Pages } from '../../../core/http/pages.js';
import { withResponse } from './redirect-uri.js';

/** What the application receives: a code or an error. */
export interface AuthorizationResponse {
  redirectUri: string;
  /** Whether the browser posts the values as a form, instead of a redirect with a query. */
  isFormPost: boolean;
  values: Readonly<Record<string, string | undefined>>;
}

/** @param status of the redirect: 303 after a form */
export function sendResponse(
  pages: Pages,
  reply: FastifyReply,
  response: AuthorizationResponse,
  status: 302 | 303,
): FastifyReply {
  if (response.isFormPost) return pages.send(reply, formPostPage(response));
  return reply.redirect(withResponse(response.redirectUri, response.values), status);
}

/** Submits itself; without scripts, the user presses the button (Form Post Response Mode §2). */
const SUBMIT = 'document.forms[0].submit()';

function formPostPage({ redirectUri, values }: AuthorizationResponse): Page {
  return {
    template: 'form-post',
    script: SUBMIT,
    view: {
      action: redirectUri,
      returnsTo: new URL(redirectUri).host,
      values: Object.entries(values).flatMap(([name, value]) =>
        value === undefined ? [] : [{ name, value: value.toWellFormed() }],
      ),
    },
    leadsElsewhere: true,
  };
}
