import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FastifyReply, FastifyRequest } from 'fastify';
import mustache from 'mustache';
import type { AppError, Rendered } from '../kernel/errors.js';
import type { Brand } from './brand.js';

/**
 * Pages: logic-less templates of `templates/pages`, each a whole document that includes the partials beside
 * it (`_head`, `_brand`, `_problems`, `_foot`) and one inlined style sheet. No script, nothing from elsewhere.
 */

const FOLDER = fileURLToPath(new URL('../../../templates/pages/', import.meta.url));
const HTML = 'text/html; charset=utf-8';

const files = readdirSync(FOLDER).filter((file) => file.endsWith('.html'));
const templates = Object.fromEntries(
  files.map((file) => [basename(file, '.html'), readFileSync(join(FOLDER, file), 'utf8')]),
);
const sheet = readFileSync(join(FOLDER, 'style.css'), 'utf8');

/** What fills a template in; every value is escaped, except what is ours: the style sheet and the logo in base64. */
export type View = { title: string } & Record<string, unknown>;

/** The pages of one service, under its brand. */
export interface Pages {
  /**
   * Answers with the document `<name>.html`.
   * @param formTargets further sources of `form-action`, for a page on the way to an application: browsers check
   * redirects after a submission, too
   */
  send(reply: FastifyReply, name: string, view: View, formTargets?: readonly string[]): FastifyReply;
  /** An error as a page. */
  renderError(error: AppError, requestId: string): Rendered;
}

export function createPages({ name, logo, style: colours = '' }: Brand): Pages {
  const style = sheet + colours;
  const styleHash = `'sha256-${createHash('sha256').update(style).digest('base64')}'`;

  const render = (template: string, view: View): string => {
    const text = templates[template];
    if (text === undefined) throw new Error(`There is no page template '${template}'.`);
    return mustache.render(text, { ...view, brand: { name: name(), logo }, style }, templates);
  };

  /** What a browser may do with a page of ours: show it and send its forms, to us and to `formTargets`. */
  const headers = (formTargets: readonly string[] = []): Record<string, string> => {
    const targets = ["'self'", ...formTargets].join(' ');
    return {
      'content-security-policy': `default-src 'none'; style-src ${styleHash}; img-src data:; form-action ${targets}; base-uri 'none'; object-src 'none'; frame-ancestors 'none'`,
      'x-frame-options': 'DENY',
      // An application may have opened its sign-in in a window of its own, and waits for an answer from there.
      ...(formTargets.length === 0 && { 'cross-origin-opener-policy': 'same-origin' }),
    };
  };

  return {
    send: (reply, template, view, formTargets) =>
      reply.headers(headers(formTargets)).type(HTML).send(render(template, view)),

    renderError(error, requestId) {
      const { message, statusCode, details, headers: own } = error;
      // A 503 says so in its sentence.
      const wait = statusCode === 429 ? waitingTime(Number(own['retry-after'])) : undefined;
      const view = { title: titleOf(error), message, statusCode, details, wait, requestId };
      const body = render('error', view);
      return { type: HTML, body, headers: headers() };
    },
  };
}

const TITLES: Record<number, string> = {
  400: 'Invalid request',
  401: 'Sign-in required',
  403: 'Access denied',
  404: 'Page not found',
  413: 'Request too large',
  414: 'URL too long',
  429: 'Too many attempts',
  503: 'Service unavailable',
};

function titleOf({ statusCode, title }: AppError): string {
  return title ?? TITLES[statusCode] ?? (statusCode < 500 ? 'Request rejected' : 'Unexpected error');
}

/** The value of `Retry-After` in words: `one minute`, `30 seconds`. */
function waitingTime(seconds: number): string | undefined {
  if (!(seconds > 0)) return undefined;
  const [count, unit] = seconds < 60 ? [seconds, 'second'] : [Math.ceil(seconds / 60), 'minute'];
  return count === 1 ? `one ${unit}` : `${count} ${unit}s`;
}

/** Whether a request comes from a browser that wants to show something. */
export function wantsPage(accept: string | undefined): boolean {
  return accept?.includes('text/html') === true;
}

/** Whether a request is a form that a page has sent. */
export function isForm({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  return headers['content-type']?.startsWith('application/x-www-form-urlencoded') === true;
}
