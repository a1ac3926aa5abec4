import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FastifyReply, FastifyRequest } from 'fastify';
import mustache from 'mustache';
import type { AppError, Rendered } from '../kernel/errors.js';
import type { Brand } from './brand.js';

/**
 * HTML pages: Mustache templates in `templates/pages`, with partials (`_head`, `_brand`, `_problems`, `_foot`) and one
 * inline style sheet, without scripts or external resources.
 */

const FOLDER = fileURLToPath(new URL('../../../templates/pages/', import.meta.url));
const HTML = 'text/html; charset=utf-8';

const files = readdirSync(FOLDER).filter((file) => file.endsWith('.html'));
const templates = Object.fromEntries(
  files.map((file) => [basename(file, '.html'), readFileSync(join(FOLDER, file), 'utf8')]),
);
const sheet = readFileSync(join(FOLDER, 'style.css'), 'utf8');

function textOf(template: string): string {
  const text = templates[template];
  if (text === undefined) throw new Error(`There is no page template '${template}'.`);
  return text;
}

/** The values of a template. All are escaped except the style sheet and the logo. */
export type View = { title: string } & Record<string, unknown>;

/** The pages of one product. */
export interface Pages {
  /**
   * Sends the page `<name>.html`.
   * @param formTargets further sources of `form-action`, which browsers also apply to redirects after a submission
   */
  send(reply: FastifyReply, name: string, view: View, formTargets?: readonly string[]): FastifyReply;
  /** Renders a partial for `{{{…}}}` in a page, so that several pages share the work. */
  renderPart(name: string, view: Record<string, unknown>): string;
  /** Renders an error page. */
  renderError(error: AppError, requestId: string): Rendered;
}

export function createPages({ name, logo, style: colours = '' }: Brand): Pages {
  const style = sheet + colours;
  const styleHash = `'sha256-${createHash('sha256').update(style).digest('base64')}'`;

  const render = (template: string, view: View): string =>
    mustache.render(textOf(template), { ...view, brand: { name: name(), logo }, style }, templates);

  /** Security headers that allow a page to submit forms to its origin and to `formTargets`. */
  const headers = (formTargets: readonly string[] = []): Record<string, string> => {
    const targets = ["'self'", ...formTargets].join(' ');
    return {
      'content-security-policy': `default-src 'none'; style-src ${styleHash}; img-src data:; form-action ${targets}; base-uri 'none'; object-src 'none'; frame-ancestors 'none'`,
      'x-frame-options': 'DENY',
      // An application may have opened the sign-in in a pop-up window and wait for its result.
      ...(formTargets.length === 0 && { 'cross-origin-opener-policy': 'same-origin' }),
    };
  };

  return {
    send: (reply, template, view, formTargets) =>
      reply.headers(headers(formTargets)).type(HTML).send(render(template, view)),

    renderPart: (name, view) => mustache.render(textOf(name), view, templates),

    renderError(error, requestId) {
      const { message, statusCode, details, headers: own } = error;
      // The message of a 503 says when to retry.
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

/** Whether a client accepts HTML. */
export function wantsPage(accept: string | undefined): boolean {
  return accept?.includes('text/html') === true;
}

/** Whether a request is a form submission. */
export function isForm({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  return headers['content-type']?.startsWith('application/x-www-form-urlencoded') === true;
}
